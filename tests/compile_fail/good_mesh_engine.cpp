// expect: success
// The mistakes beside it are made of this.
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

Placed block(MeshEngine<Grid>& engine, OnMesh<Grid, S<0>, P>&& out) {
  OnMesh<Grid, S<0>, S<0>> mine = engine.reduce_scatter<tensor, 0>(std::move(out));
  OnMesh<Grid, S<0>, R> rows = engine.all_gather<tensor>(std::move(mine));
  return engine.all_gather<data>(std::move(rows));
}
