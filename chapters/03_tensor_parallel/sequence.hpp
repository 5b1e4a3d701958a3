#pragma once

///     ./chapters/run 03 -n 4 train --variant sequence
///
/// Tensor parallel in its sequence form (Korthikanti et al. 2022, "Reducing Activation Recomputation in Large
/// Transformer Models", section 4.2.2). An all-reduce is a reduce-scatter and an all-gather. Here they are
/// separate calls. Between blocks, activations are divided by rows; they are gathered only where a
/// column-parallel layer needs all rows. The forward pass sends the same bytes. A device holds less, and
/// computation between blocks is divided too.
/// Builds on: 03_tensor_parallel/tensor_parallel.hpp.

#include "engine/engines/sharded_engine.hpp"
#include "engine/workloads/mlp/layers.hpp"

namespace shard::tensor_parallel {

class SequenceParallel : public ShardedEngine {
 public:
  using ShardedEngine::ShardedEngine;

  /// ## What this device owns
  /// As in the column-row form.
  void load_checkpoint(const Checkpoint& checkpoint) override {
    const Index num_layers = layers_in_blocks(checkpoint);
    blocks_.clear();
    for (Index l = 0; l < num_layers; l += 2)
      blocks_.push_back(
          {load_sharded<1>(checkpoint, layer_name(l)), load_sharded<0>(checkpoint, layer_name(l + 1))});
  }

  /// ## Forward
  Placed forward(Tensor input) override {
    Sharded<0> x = my_rows(std::move(input));  // (b, D)     my rows
    std::vector<Kept> kept;
    for (const Block& block : blocks_) {
      Sharded<1> h = relu(matmul(all_gather(x), block.w0));  // (B, F/N)   R·S1 = S1
      Partial out = matmul(h, block.w1);                     // (B, D)     S1·S0 = P
      kept.push_back({std::move(x), std::move(h)});
      x = reduce_scatter<0>(std::move(out));  // (b, D)     P → S0: my rows of the sum
    }
    tape_.push(std::move(kept));
    return x;
  }

  /// ## Backward
  /// Each block's input is gathered again, since a device kept only its rows. This third collective is the
  /// price for holding less.
  Gradients backward(Tensor dout) override {
    auto [kept] = tape_.pop();
    Gradients gradients;
    Sharded<0> d = my_rows(std::move(dout));  // (b, D)
    for (Index i = num_blocks() - 1; i >= 0; --i, kept.pop_back())
      d = backward_block(i, kept.back(), std::move(d), gradients);
    if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
    return gradients;
  }

  Placement input_layout() const override { return Placement::sharded(0); }

  Trainables trainable() override { return layers(blocks_, &Block::w0, &Block::w1); }

 private:
  struct Block {
    Sharded<1> w0;  // (D, F/N)   my columns
    Sharded<0> w1;  // (F/N, D)   my rows
  };
  struct Kept {
    Sharded<0> x;  // (b, D)
    Sharded<1> h;  // (B, F/N)
  };

  Sharded<0> backward_block(Index i, const Kept& kept, Sharded<0> mine, Gradients& gradients) {
    const Block& block = blocks_[static_cast<std::size_t>(i)];
    Sharded<1> dz;
    {
      Replicated d = all_gather(std::move(mine));                           // (B, D)     S0 → R
      gradients.put(layer_name(2 * i + 1), matmul(transposed(kept.h), d));  // (F/N, D)   S1ᵀ·R = S0
      Sharded<1> dh = matmul(d, transposed(block.w1));                      // (B, F/N)   R·S0ᵀ = S1
      dz = relu_backward(std::move(dh), kept.h);                            // (B, F/N)
    }
    gradients.put(layer_name(2 * i), matmul(transposed(all_gather(kept.x)), dz));  // (D, F/N)   R·S1 = S1
    if (i == 0 && !wants_input_grad()) return {};
    return reduce_scatter<0>(matmul(dz, transposed(block.w0)));  // (b, D)     S1·S1ᵀ = P → S0
  }

  Index num_blocks() const { return static_cast<Index>(blocks_.size()); }

  std::vector<Block> blocks_;
  Tape<std::vector<Kept>> tape_;  // each block's activations
};

}  // namespace shard::tensor_parallel
