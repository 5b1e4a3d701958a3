#pragma once

///     ./chapters/run 06 -n 4 train --variant zero3-keep
///
/// The third stage, with weights kept from the forward pass to the backward pass. PyTorch's FSDP calls it
/// SHARD_GRAD_OP (Zhao et al. 2023). The weights are gathered once in a step and not twice. In exchange, each
/// device holds all weights whole at the time when it holds most activations. Between steps it holds only its
/// shards.
/// Builds on: 06_fully_sharded/zero3.hpp.

#include "engine/engines/sharded_engine.hpp"
#include "engine/workloads/mlp/layers.hpp"

namespace shard::fully_sharded {

class Zero3Keep : public ShardedEngine {
 public:
  using ShardedEngine::ShardedEngine;

  /// ## What this device owns
  /// Its rows of each parameter, as in the third stage.
  void load_checkpoint(const Checkpoint& checkpoint) override {
    shards_ = load_all<Sharded<0>>(checkpoint, layer_names(checkpoint));
    whole_ = std::vector<ReplicatedFactor>(shards_.size());
  }

  /// ## Forward
  /// Gather, compute, keep. When several forward passes come before their backward passes, they share one
  /// copy of the weights, which the first of them gathers.
  Placed forward(Tensor input) override {
    Sharded<0> a = my_rows(std::move(input));  // (b, D)
    std::vector<Sharded<0>> inputs;
    for (std::size_t l = 0; l < shards_.size(); ++l) {
      if (relu_before(l)) a = relu(std::move(a));  // (b, F)
      Sharded<0> out = matmul(a, gathered(l));     // (b, F) or (b, D)    S0·R = S0
      inputs.push_back(std::move(a));
      a = std::move(out);
      if (InferenceMode::is_on()) discard(l);  // no backward pass will come
    }
    tape_.push(std::move(inputs));
    return a;
  }

  /// ## Backward
  /// The weights are still held. The last backward pass frees them, layer by layer.
  Gradients backward(Tensor dout) override {
    auto [inputs] = tape_.pop();
    Sharded<0> d = my_rows(std::move(dout), inputs[0]);  // like the output
    Gradients gradients;
    for (std::size_t l = shards_.size(); l-- > 0; inputs.pop_back()) {
      const Sharded<0>& a = inputs[l];                                 // (b, D) or (b, F)
      Partial dw = matmul(transposed(a), d);                           // (D, F)      S0ᵀ·S0 = S1·S0 = P
      gradients.put(layer_name(l), reduce_scatter<0>(std::move(dw)));  // (D/N, F)    P → S0
      if (l > 0 || wants_input_grad()) d = matmul(d, transposed(gathered(l)));  // like a    S0·R = S0
      if (relu_before(l)) d = relu_backward(std::move(d), a);
      discard(l);
    }
    if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
    return gradients;
  }

  Placement input_layout() const override { return Placement::sharded(0); }

  /// ## The step
  Trainables trainable() override { return layers(shards_); }

  /// The step has changed the parameters, so whole weights that are still kept are old. They are freed, and a
  /// backward pass that comes later gathers the new ones.
  void after_step() override { whole_ = std::vector<ReplicatedFactor>(shards_.size()); }

 private:
  /// A layer's whole weights, (D, F) or (F, D). Gathers them, unless this device holds them already.
  const ReplicatedFactor& gathered(std::size_t l) {
    if (whole_[l].is_empty()) whole_[l] = all_gather_factor(shards_[l]);  // S0 → R
    return whole_[l];
  }
  /// Frees a layer's weights, unless a backward pass will still need them.
  void discard(std::size_t l) {
    if (tape_.empty()) whole_[l] = ReplicatedFactor();
  }

  std::vector<Sharded<0>> shards_;       // (D/N, F), (F/N, D), ...
  std::vector<ReplicatedFactor> whole_;  // (D, F), (F, D), ... between forward and backward, else empty
  Tape<std::vector<Sharded<0>>> tape_;   // each layer's input, my rows
};

}  // namespace shard::fully_sharded
