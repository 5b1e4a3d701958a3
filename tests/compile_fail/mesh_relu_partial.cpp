// expect: ReLU is not linear, so f(a) + f(b) is not f(a + b): reduce the Partial first
// An addend on one axis.
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

auto activation(OnMesh<Grid, S<0>, P>&& z) {
  return relu(std::move(z));
}
