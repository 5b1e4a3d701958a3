// expect: the sum and the addend have different layouts
// Both are addends, over different axes.
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

void add(OnMesh<Grid, R, P>& sum, OnMesh<Grid, P, R>&& addend) {
  accumulate(sum, std::move(addend));
}
