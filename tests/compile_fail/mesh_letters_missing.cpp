// expect: OnMesh has one letter for each axis of its mesh
// Two axes and one letter.
#include "engine/on_mesh.hpp"

using namespace shard;
using namespace shard::letters;

struct data {
  static constexpr const char* name = "data";
};
struct tensor {
  static constexpr const char* name = "tensor";
};
using Grid = MeshAxes<data, tensor>;

OnMesh<Grid, R> whole;  // <-
