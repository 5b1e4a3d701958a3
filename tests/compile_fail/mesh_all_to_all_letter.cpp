// expect: all_to_all<axis, from, to> takes a tensor that is cut along `from` on this axis
// It is cut by columns there.
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

auto collective(MeshEngine<Grid>& engine, OnMesh<Grid, R, S<1>>&& s) {
  return engine.all_to_all<tensor, 0, 1>(std::move(s));
}
