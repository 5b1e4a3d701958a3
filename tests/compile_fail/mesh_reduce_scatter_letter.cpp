// expect: reduce_scatter<axis, dimension> sums the addends of an axis
// It is whole over data.
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
  return engine.reduce_scatter<data, 0>(std::move(p));
}
