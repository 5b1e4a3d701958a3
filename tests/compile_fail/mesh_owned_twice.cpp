// expect: OnMesh has the letter O on at most one axis
// One place on two axes.
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

OnMesh<Grid, O, O> whole;  // <-
