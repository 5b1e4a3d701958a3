// expect: S1·R has no product
// The collective that follows adds no second error.
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

auto block(MeshEngine<Grid>& engine, const OnMesh<Grid, S<0>, S<1>>& h, const OnMesh<Grid, R, R>& w) {
  OnMesh<Grid, S<0>, P> out = matmul(h, w);  // <-
  return engine.all_reduce<tensor>(std::move(out));
}
