// expect: a letter W has the products W0·R = W0, R·W1 = W1 and W1·W0 = P
// Whole heads of one factor do not meet single rows of the other.
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

auto product(const OnMesh<Grid, S<0>, W<1>>& a, const OnMesh<Grid, R, S<0>>& b) {
  return matmul(a, b);
}
