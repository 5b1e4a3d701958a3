#pragma once

///     ./chapters/run 03 -n 4 train --variant row-column
///
/// The other cut, to show what it costs: layer 0 by rows, layer 1 by columns. Then x W0 is a sum over
/// devices, and the ReLU needs the sum. So the all-reduce sends the wide hidden activation, and every device
/// holds the whole activation and computes its whole ReLU. Between blocks no communication is needed: a
/// device computes the columns of a block's output that multiply its rows of the next block's first matrix.
/// Builds on: 03_tensor_parallel/tensor_parallel.hpp.

#include "engine/engines/sharded_engine.hpp"
#include "engine/workloads/mlp/layers.hpp"

namespace shard::tensor_parallel {

class RowColumnParallel : public ShardedEngine {
 public:
  using ShardedEngine::ShardedEngine;

  /// ## What this device owns
  /// D/N rows of each even layer, D/N columns of each odd one.
  void load_checkpoint(const Checkpoint& checkpoint) override {
    const Index num_layers = layers_in_blocks(checkpoint);
    blocks_.clear();
    for (Index l = 0; l < num_layers; l += 2)
      blocks_.push_back(
          {load_sharded<0>(checkpoint, layer_name(l)), load_sharded<1>(checkpoint, layer_name(l + 1))});
  }

  /// ## Forward
  Placed forward(Tensor input) override {
    Sharded<1> x =
        shard<1>(Replicated(group(), std::move(input)));  // (B, D/N)   my columns; no communication
    std::vector<Kept> kept;
    for (const Block& block : blocks_) {
      Partial z = matmul(x, block.w0);                // (B, F)     my addend:   S1·S0 = P
      Replicated h = relu(all_reduce(std::move(z)));  // (B, F)     P → R: before the ReLU, and wide
      Sharded<1> out = matmul(h, block.w1);           // (B, D/N)   my columns:  R·S1 = S1
      kept.push_back({std::move(x), std::move(h)});
      x = std::move(out);
    }
    tape_.push(std::move(kept));
    return all_gather(std::move(x));  // (B, D)     S1 → R
  }

  /// ## Backward
  Gradients backward(Tensor dout) override {
    auto [kept] = tape_.pop();
    Gradients gradients;
    Sharded<1> d = shard<1>(Replicated(group(), std::move(dout)));  // (B, D/N)   my columns; no communication
    for (Index i = num_blocks() - 1; i >= 0; --i, kept.pop_back()) {
      const auto& [x, h] = kept.back();
      const Block& block = blocks_[static_cast<std::size_t>(i)];
      gradients.put(layer_name(2 * i + 1), matmul(transposed(h), d));  // (F, D/N)   R·S1 = S1
      Replicated dh = all_reduce(matmul(d, transposed(block.w1)));  // (B, F)     S1·S1ᵀ = P → R: wide again
      Replicated dz = relu_backward(std::move(dh), h);              // (B, F)
      gradients.put(layer_name(2 * i), matmul(transposed(x), dz));            // (D/N, F)   S1ᵀ·R = S0
      if (i > 0 || wants_input_grad()) d = matmul(dz, transposed(block.w0));  // (B, D/N)   R·S0ᵀ = S1
    }
    if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
    return gradients;
  }

  Placement input_layout() const override { return Placement::replicated(); }

  Trainables trainable() override { return layers(blocks_, &Block::w0, &Block::w1); }

 private:
  struct Block {
    Sharded<0> w0;  // (D/N, F)   my rows
    Sharded<1> w1;  // (F, D/N)   my columns
  };
  struct Kept {
    Sharded<1> x;  // (B, D/N)
    Replicated h;  // (B, F)
  };

  Index num_blocks() const { return static_cast<Index>(blocks_.size()); }

  std::vector<Block> blocks_;
  Tape<std::vector<Kept>> tape_;  // each block's activations
};

}  // namespace shard::tensor_parallel
