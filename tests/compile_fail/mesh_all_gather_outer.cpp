// expect: an inner axis cuts the slices of this axis further: gather over the inner axis first
// The slices over data are cut over tensor.
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

auto collective(MeshEngine<Grid>& engine, OnMesh<Grid, S<0>, S<0>>&& s) {
  return engine.all_gather<data>(std::move(s));
}
