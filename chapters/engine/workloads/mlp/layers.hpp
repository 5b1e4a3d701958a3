#pragma once

/// The layers of a stack in an engine, for its optimizer.

#include "engine/engines/trainable.hpp"
#include "engine/workloads/mlp/model.hpp"

namespace shard {

/// The weights of layers 0, 1, ...
template <Layout L>
Trainables layers(std::vector<L>& weights) {
  Trainables all;
  for (std::size_t l = 0; l < weights.size(); ++l) all.add(layer_name(static_cast<Index>(l)), weights[l]);
  return all;
}

/// The weights of layers 0, 1, ... in blocks of several: `layers(blocks, &Block::w0, &Block::w1)`.
template <class Block, Layout... L>
Trainables layers(std::vector<Block>& blocks, L Block::*... weights) {
  Trainables all;
  Index l = 0;
  for (Block& block : blocks) (all.add(layer_name(l++), block.*weights), ...);
  return all;
}

}  // namespace shard
