// expect: an Owned multiplies an Owned only
// The weight is on all places of the axis pipeline, and the activation at one of them.
#include "engine/on_mesh.hpp"

using namespace shard;
using namespace shard::letters;

struct data {
  static constexpr const char* name = "data";
};
struct pipeline {
  static constexpr const char* name = "pipeline";
};
using Grid = MeshAxes<data, pipeline>;

auto product(const OnMesh<Grid, S<0>, O>& a, const OnMesh<Grid, R, R>& b) {
  return matmul(a, b);
}
