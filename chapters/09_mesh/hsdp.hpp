#pragma once

///     ./chapters/run 09 -n 4 train --variant hsdp
///
/// Hybrid sharding: fully sharded within a group, data parallel between groups (Zhao et al. 2023, "PyTorch
/// FSDP", section 3.2.2). The rows of the batch are divided over both axes: over replica, and each part again
/// over shard. The parameters are divided over shard alone, so weights are gathered inside a small group, on
/// fast links. Between groups each device sums only its part of the gradients. In the comments N is the
/// number of devices along shard, and b the number of this device's rows.
/// Builds on: 06_fully_sharded/zero3.hpp.

#include "axes.hpp"
#include "engine/workloads/mlp/layers.hpp"

namespace shard::meshes {

class Hsdp : public MeshEngine<HsdpAxes> {
 public:
  using MeshEngine::MeshEngine;

  /// ## What this device owns
  /// D/N rows of each even layer, F/N of each odd one, as in fully sharded on one group of N devices.
  void load_checkpoint(const Checkpoint& checkpoint) override {
    shards_.clear();
    for (const std::string& name : layer_names(checkpoint))
      shards_.push_back(load<R, S<0>>(checkpoint, name));
  }

  /// ## Forward
  /// For each layer: gather its weights, compute on this device's rows of the batch, free the weights.
  Placed forward(Tensor input) override {
    On<S<0>, S<0>> a = from_outside<S<0>, S<0>>(std::move(input));  // (b, D)   my rows
    std::vector<On<S<0>, S<0>>> inputs;
    for (std::size_t l = 0; l < shards_.size(); ++l) {
      if (relu_before(l)) a = relu(std::move(a));
      On<R, R> w = all_gather<shards>(shards_[l]);  // (D, F)             (R, S0) → (R, R)
      On<S<0>, S<0>> out = matmul(a, w);            // (b, F) or (b, D)   (S0, S0)·(R, R) = (S0, S0)
      inputs.push_back(std::move(a));
      a = std::move(out);
    }
    tape_.push(std::move(inputs));
    return a;
  }

  /// ## Backward
  /// A gradient is an addend over both axes. The devices along shard divide its sum. Then each device sums
  /// its part with the devices along replica, which have the same part.
  Gradients backward(Tensor dout) override {
    auto [inputs] = tape_.pop();
    Gradients gradients;
    On<S<0>, S<0>> d = from_outside<S<0>, S<0>>(std::move(dout));  // like the output
    for (std::size_t l = shards_.size(); l-- > 0; inputs.pop_back()) {
      const On<S<0>, S<0>>& a = inputs[l];
      On<P, P> addend = matmul(transposed(a), d);  // (D, F)     (S0, S0)ᵀ·(S0, S0) = (P, P)
      On<P, S<0>> mine = reduce_scatter<shards, 0>(std::move(addend));     // (D/N, F)   (P, P) → (P, S0)
      gradients.put(layer_name(l), all_reduce<replica>(std::move(mine)));  // (D/N, F)   (P, S0) → (R, S0)
      if (l > 0 || wants_input_grad()) {
        On<R, R> w = all_gather<shards>(shards_[l]);  // (D, F)   (R, S0) → (R, R): once more
        d = matmul(d, transposed(w));                 // like a
      }
      if (relu_before(l)) d = relu_backward(std::move(d), a);
    }
    if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
    return gradients;
  }

  Placement input_layout() const override { return placement<S<0>, S<0>>(); }

  Trainables trainable() override { return layers(shards_); }

 private:
  std::vector<On<R, S<0>>> shards_;         // (D/N, F), (F/N, D), ...
  Tape<std::vector<On<S<0>, S<0>>>> tape_;  // each layer's input, my rows
};

}  // namespace shard::meshes
