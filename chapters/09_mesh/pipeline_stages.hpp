#pragma once

/// Three axes: the batch over data, blocks of two layers over pipeline, each matrix over tensor.

#include <vector>

#include "axes.hpp"
#include "engine/workloads/mlp_layers.hpp"

namespace shard::meshes {

using PipelineAxes = MeshAxes<data, pipeline, tensor>;
template <class... Letters>
using OnThree = OnMesh<PipelineAxes, Letters...>;

/// Two layers. They lie at one place on the axis pipeline, and are divided there over tensor.
struct StageBlock {
  OnThree<R, O, S<1>> w0;  // (D, f)   my columns
  OnThree<R, O, S<0>> w1;  // (f, D)   my rows
};
/// The addends of their gradients: sums over this device's rows.
struct BlockAddends {
  OnThree<P, O, S<1>> dw0;  // (D, f)
  OnThree<P, O, S<0>> dw1;  // (f, D)
};

/// How many blocks, one after the other, each stage has. If there is a rest, the first stages have one more.
inline Range blocks_of(Index num_blocks, int stages, int stage) {
  return part(num_blocks, stages, stage);
}

/// The stages of all places, and the blocks that this device holds.
struct BlockStages {
  int count = 1;                   ///< on all places; stage s is at the place s mod places
  std::vector<StageBlock> blocks;  ///< of the network; those of other places are absent

  Range of(int stage) const { return blocks_of(static_cast<Index>(blocks.size()), count, stage); }
  const StageBlock& block(Index i) const { return blocks[static_cast<std::size_t>(i)]; }
};

}  // namespace shard::meshes
