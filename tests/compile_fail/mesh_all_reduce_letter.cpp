// expect: all_reduce<axis> sums the addends of an axis, and on this axis the tensor is no Partial
// It is a Partial over tensor, and the call names data.
#include "engine/mesh_engine.hpp"

using namespace shard;
using namespace shard::letters;

struct data {
  static constexpr const char* name = "data";
};
struct tensor {
  static constexpr const char* name = "tensor";
};
using Grid = MeshAxes<data, tensor>;

auto collective(MeshEngine<Grid>& engine, OnMesh<Grid, R, P>&& p) {
  return engine.all_reduce<data>(std::move(p));
}
