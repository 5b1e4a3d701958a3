// expect: shard<axis, dimension> cuts a tensor that is Replicated on this axis
// It is cut over data.
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

auto collective(MeshEngine<Grid>& engine, const OnMesh<Grid, S<0>, R>& s) {
  return engine.shard<data, 1>(s);
}
