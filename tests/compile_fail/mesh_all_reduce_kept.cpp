// expect: all_reduce<axis> consumes its argument
// The argument would still be an addend.
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

auto collective(MeshEngine<Grid>& engine, OnMesh<Grid, R, P>& p) {
  return engine.all_reduce<tensor>(p);
}
