// expect: the gradient is a Partial, and ReLU's derivative is taken of the sum
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

auto derivative(OnMesh<Grid, S<0>, P>&& d, const OnMesh<Grid, S<0>, P>& h) {
  return relu_backward(std::move(d), h);
}
