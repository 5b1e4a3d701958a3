// expect: a Partial and a reduced tensor cannot be added
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

auto sum(OnMesh<Grid, S<0>, P>&& a, const OnMesh<Grid, S<0>, R>& b) {
  return std::move(a) + b;
}
