// expect: the letters differ: a collective that names its axis changes the letter of that axis
// The product is cut over tensor.
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

OnMesh<Grid, S<0>, R> product(const OnMesh<Grid, S<0>, R>& a, const OnMesh<Grid, R, S<1>>& b) {
  return matmul(a, b);
}
