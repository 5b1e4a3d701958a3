// expect: S0·S0 has no product: a without transposed would make it S1·S0 = P
// The rows of the batch meet on the axis data, and the transposed activation is cut elsewhere on tensor.
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

auto product(const OnMesh<Grid, S<0>, S<1>>& a, const OnMesh<Grid, S<0>, S<0>>& b) {
  return matmul(transposed(a), b);
}
