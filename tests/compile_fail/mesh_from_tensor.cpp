// expect: a tensor has no layout: OnMesh(mesh(), std::move(x), global_shape) claims where it lies
// Nothing says how it is cut.
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

OnMesh<Grid, S<0>, R> claim(Tensor x) {
  return x;  // <-
}
