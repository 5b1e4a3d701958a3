// expect: a Partial cannot leave an engine: it is one addend of a sum over the devices, so reduce it first
// Both axes cut the rows, so the gradient of a norm's weight is an addend on both. One of them is summed.
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

void put_weight(MeshEngine<Grid>& engine, OnMesh<Grid, P, P>&& dweight, Gradients& gradients) {
  gradients.put("norm", engine.all_reduce<data>(std::move(dweight)));
}
