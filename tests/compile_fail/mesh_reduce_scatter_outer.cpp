// expect: reduce and scatter over the outer axis first
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

auto collective(MeshEngine<Grid>& engine, OnMesh<Grid, P, S<0>>&& p) {
  return engine.reduce_scatter<data, 0>(std::move(p));
}
