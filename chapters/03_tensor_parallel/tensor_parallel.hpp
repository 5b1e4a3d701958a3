#pragma once

///     ./chapters/run 03 -n 4
///
/// The weights are divided: layer 0 by columns, layer 1 by rows (Shoeybi et al. 2019, "Megatron-LM", section
/// 3). A device computes its columns of the hidden activation, and the ReLU of these columns without any
/// communication. It multiplies them by its rows of the second matrix, which gives one addend of the output.
/// So a block of two layers needs one all-reduce in the forward pass, and one in the backward pass for dL/dx.
/// Builds on: 01_single_device.

#include "engine/engines/sharded_engine.hpp"
#include "engine/workloads/mlp/layers.hpp"

namespace shard::tensor_parallel {

class TensorParallel : public ShardedEngine {
 public:
  using ShardedEngine::ShardedEngine;

  /// ## What this device owns
  /// F/N columns of each even layer and the matching F/N rows of each odd one.
  void load_checkpoint(const Checkpoint& checkpoint) override {
    const Index num_layers = layers_in_blocks(checkpoint);
    blocks_.clear();
    for (Index l = 0; l < num_layers; l += 2)
      blocks_.push_back(
          {load_sharded<1>(checkpoint, layer_name(l)), load_sharded<0>(checkpoint, layer_name(l + 1))});
  }

  /// ## Forward
  Placed forward(Tensor input) override {
    Replicated x(group(), std::move(input));  // (B, D)     the same on every device
    std::vector<Kept> kept;
    for (const Block& block : blocks_) {
      Sharded<1> h = relu(matmul(x, block.w0));  // (B, F/N)   my columns:  R·S1 = S1
      Partial out = matmul(h, block.w1);         // (B, D)     my addend:   S1·S0 = P
      kept.push_back({std::move(x), std::move(h)});
      x = all_reduce(std::move(out));  // (B, D)     P → R: the block's one synchronisation forward
    }
    tape_.push(std::move(kept));
    return x;
  }

  /// ## Backward
  /// The gradients of the weights are divided like the weights, and need no communication.
  Gradients backward(Tensor dout) override {
    auto [kept] = tape_.pop();
    Replicated d(group(), std::move(dout));  // (B, D)
    Gradients gradients;
    for (Index i = num_blocks() - 1; i >= 0; --i, kept.pop_back()) {
      const auto& [x, h] = kept.back();
      const Block& block = blocks_[static_cast<std::size_t>(i)];
      gradients.put(layer_name(2 * i + 1), matmul(transposed(h), d));  // (F/N, D)   S1ᵀ·R = S0
      Sharded<1> dh = matmul(d, transposed(block.w1));                 // (B, F/N)   R·S0ᵀ = S1
      Sharded<1> dz = relu_backward(std::move(dh), h);                 // (B, F/N)
      gradients.put(layer_name(2 * i), matmul(transposed(x), dz));     // (D, F/N)   R·S1 = S1
      if (i == 0 && !wants_input_grad()) continue;
      Partial dx = matmul(dz, transposed(block.w0));  // (B, D)     S1·S1ᵀ = P
      d = all_reduce(std::move(dx));  // (B, D)     P → R: without it, all earlier gradients are wrong
    }
    if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
    return gradients;
  }

  Placement input_layout() const override { return Placement::replicated(); }

  Trainables trainable() override { return layers(blocks_, &Block::w0, &Block::w1); }

 private:
  struct Block {
    Sharded<1> w0;  // (D, F/N)   my columns
    Sharded<0> w1;  // (F/N, D)   my rows
  };
  struct Kept {
    Replicated x;  // (B, D)
    Sharded<1> h;  // (B, F/N)
  };

  Index num_blocks() const { return static_cast<Index>(blocks_.size()); }

  std::vector<Block> blocks_;
  Tape<std::vector<Kept>> tape_;  // each block's activations
};

}  // namespace shard::tensor_parallel
