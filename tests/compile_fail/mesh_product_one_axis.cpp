// expect: S1·R has no product
// S0·R is legal on the axis data, and S1·R is not on the axis tensor.
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

auto product(const OnMesh<Grid, S<0>, S<1>>& a, const OnMesh<Grid, R, R>& b) {
  return matmul(a, b);
}
