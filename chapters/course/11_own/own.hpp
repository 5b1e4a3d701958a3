#pragma once

///     ./chapters/run 11 -n 4 train --layers 4 --hidden-dim 16
///
/// A strategy for networks whose hidden activations are narrow: F is less than D. The rows of the first matrix of a
/// block are divided, and the columns of the second one. So the sums that devices make are of F numbers a row and not
/// of D, and between blocks each device keeps its columns of the activation.

#include "engine/engines/sharded_engine.hpp"
#include "engine/workloads/mlp/layers.hpp"

namespace shard::own {

class Own : public ShardedEngine {
 public:
  using ShardedEngine::ShardedEngine;

  void load_checkpoint(const Checkpoint& checkpoint) override {
    const Index num_layers = layers_in_blocks(checkpoint);
    blocks_.clear();
    for (Index l = 0; l < num_layers; l += 2)
      blocks_.push_back(
          {load_sharded<0>(checkpoint, layer_name(l)), load_sharded<1>(checkpoint, layer_name(l + 1))});
  }

  Placed forward(Tensor input) override {
    Sharded<1> x = shard<1>(Replicated(group(), std::move(input)));  // (B, D/N)   my columns
    std::vector<Kept> kept;
    for (const Block& block : blocks_) {
      Replicated h = relu(all_reduce(matmul(x, block.w0)));  // (B, F)     S1·S0 = P → R: narrow
      Sharded<1> out = matmul(h, block.w1);                  // (B, D/N)   R·S1 = S1
      kept.push_back({std::move(x), std::move(h)});
      x = std::move(out);
    }
    tape_.push(std::move(kept));
    return all_gather(std::move(x));  // (B, D)     S1 → R
  }

  Gradients backward(Tensor dout) override {
    auto [kept] = tape_.pop();
    Gradients gradients;
    Sharded<1> d = shard<1>(Replicated(group(), std::move(dout)));  // (B, D/N)
    for (Index i = static_cast<Index>(blocks_.size()) - 1; i >= 0; --i, kept.pop_back()) {
      const Block& block = blocks_[static_cast<std::size_t>(i)];
      gradients.put(layer_name(2 * i + 1), matmul(transposed(kept.back().h), d));  // (F, D/N)
      Replicated dh = all_reduce(matmul(d, transposed(block.w1)));              // (B, F)     P → R: narrow
      Replicated dz = relu_backward(std::move(dh), kept.back().h);              // (B, F)
      gradients.put(layer_name(2 * i), matmul(transposed(kept.back().x), dz));  // (D/N, F)
      if (i > 0 || wants_input_grad()) d = matmul(dz, transposed(block.w0));    // (B, D/N)
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

  std::vector<Block> blocks_;
  Tape<std::vector<Kept>> tape_;
};

}  // namespace shard::own
