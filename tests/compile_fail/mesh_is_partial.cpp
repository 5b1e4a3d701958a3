// expect: on an axis this is one addend of a sum
// The product is an addend over tensor.
#include "engine/on_mesh.hpp"

using namespace shard;
using namespace shard::letters;

struct data {
  static constexpr const char* name = "data";
};
struct tensor {
  static constexpr const char* name = "tensor";
};
using Grid = MeshAxes<data, tensor>;

OnMesh<Grid, S<0>, R> product(const OnMesh<Grid, S<0>, S<1>>& a, const OnMesh<Grid, R, S<0>>& b) {
  return matmul(a, b);
}
