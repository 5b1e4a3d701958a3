// expect: all_gather<axis> joins the slices of an axis, and on this axis the tensor is not cut
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

auto collective(MeshEngine<Grid>& engine, OnMesh<Grid, S<0>, R>&& s) {
  return engine.all_gather<tensor>(std::move(s));
}
