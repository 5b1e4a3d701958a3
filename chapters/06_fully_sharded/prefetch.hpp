#pragma once

///     ./chapters/run 06 -n 4 train --variant zero3-prefetch
///
/// The third stage, with communication hidden behind computation (Zhao et al. 2023, "PyTorch FSDP", section
/// 3.3). While a device computes one layer, it gathers the weights of the layer that comes next. In the
/// backward pass it also reduce-scatters the gradient of the layer that it computed last. The bytes sent are
/// the same. In exchange, a device holds the weights of two layers at a time, and two gradients.
/// Builds on: 06_fully_sharded/zero3.hpp.

#include "engine/engines/sharded_engine.hpp"
#include "engine/workloads/mlp/layers.hpp"

namespace shard::fully_sharded {

class Zero3Prefetch : public ShardedEngine {
 public:
  using ShardedEngine::ShardedEngine;

  /// ## What this device owns
  /// Its rows of each parameter, as in the third stage.
  void load_checkpoint(const Checkpoint& checkpoint) override {
    shards_ = load_all<Sharded<0>>(checkpoint, layer_names(checkpoint));
  }

  /// ## Forward
  /// Each gather runs while the layer before it computes. Only the first one has to be waited for.
  Placed forward(Tensor input) override {
    Sharded<0> a = my_rows(std::move(input));  // (b, D)
    std::vector<Sharded<0>> inputs;
    ReplicatedFactor w = all_gather_factor(shards_[0]);  // (D, F)    S0 → R
    for (std::size_t l = 0; l < shards_.size(); ++l) {
      Future<ReplicatedFactor> next;
      if (l + 1 < shards_.size()) next = all_gather_factor_async(shards_[l + 1]);  // S0 → R, some time
      if (relu_before(l)) a = relu(std::move(a));                                  // (b, F)
      Sharded<0> out = matmul(a, w);  // (b, F) or (b, D)    S0·R = S0
      inputs.push_back(std::move(a));
      a = std::move(out);
      w = next.get();  // frees this layer's
    }
    tape_.push(std::move(inputs));
    return a;
  }

  /// ## Backward
  /// The loop goes from the last layer to the first. While it computes layer l, the weights of layer l-1
  /// arrive. Layer l's weights are freed only after that, so the most that is held does not depend on timing.
  Gradients backward(Tensor dout) override {
    auto [inputs] = tape_.pop();
    Sharded<0> d = my_rows(std::move(dout), inputs[0]);  // like the output
    Gradients gradients;
    ReplicatedFactor w;
    if (needs_weights(shards_.size() - 1)) w = all_gather_factor(shards_.back());  // (D, F)    S0 → R
    Future<Sharded<0>> leaving;  // the gradient of layer l+1, which is being reduced
    for (std::size_t l = shards_.size(); l-- > 0; inputs.pop_back()) {
      const Sharded<0>& a = inputs[l];  // (b, D) or (b, F)
      Future<ReplicatedFactor> next;
      if (l > 0 && needs_weights(l - 1)) next = all_gather_factor_async(shards_[l - 1]);  // S0 → R, some time
      Partial dw = matmul(transposed(a), d);  // (D, F)    S0ᵀ·S0 = S1·S0 = P
      Sharded<0> da;
      if (needs_weights(l)) da = matmul(d, transposed(w));  // like a    S0·R = S0
      w = next.get();                                       // frees this layer's
      if (l + 1 < shards_.size()) gradients.put(layer_name(l + 1), leaving.get());
      leaving = reduce_scatter_async<0>(std::move(dw));  // (D/N, F)    P → S0, some time
      d = relu_before(l) ? relu_backward(std::move(da), a) : std::move(da);
    }
    gradients.put(layer_name(0), leaving.get());
    if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
    return gradients;
  }

  Placement input_layout() const override { return Placement::sharded(0); }

  /// ## The step
  Trainables trainable() override { return layers(shards_); }

 private:
  /// Whether the backward pass computes dL/dx of a layer.
  bool needs_weights(std::size_t l) const { return l > 0 || wants_input_grad(); }

  std::vector<Sharded<0>> shards_;      // (D/N, F), (F/N, D), ...
  Tape<std::vector<Sharded<0>>> tape_;  // each layer's input, my rows
};

}  // namespace shard::fully_sharded
