// expect: a Partial cannot leave an engine
// An addend over tensor.
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

Placed result(OnMesh<Grid, S<0>, P>&& out) {
  return std::move(out);
}
