// expect: an inner axis cuts this dimension already: shard over the outer axis first
// The rows are cut over tensor already.
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

auto collective(MeshEngine<Grid>& engine, const OnMesh<Grid, R, S<0>>& s) {
  return engine.shard<data, 0>(s);
}
