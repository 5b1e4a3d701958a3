// expect: all_reduce<axis, other> sums the addends of all of these axes, and on one of them the tensor is no Partial
// An expert's gradient, reduced over the devices that have other experts, too.
#include "engine/mesh_engine.hpp"

using namespace shard;
using namespace shard::letters;

struct data {
  static constexpr const char* name = "data";
};
struct expert {
  static constexpr const char* name = "expert";
};
using Grid = MeshAxes<data, expert>;

void step(MeshEngine<Grid>& engine, OnMesh<Grid, P, O> gradient) {
  engine.all_reduce<data, expert>(std::move(gradient));  // <-
}
