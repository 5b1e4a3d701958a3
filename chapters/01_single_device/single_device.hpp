#pragma once

///     ./chapters/run 01
///
/// The network on one device. Nothing is divided. The other chapters divide what this file computes. With
/// more devices, each does the same work on the same data.

#include "engine/engines/sharded_engine.hpp"
#include "engine/workloads/mlp/layers.hpp"

namespace shard::single_device {

class SingleDevice : public ShardedEngine {
 public:
  using ShardedEngine::ShardedEngine;

  /// ## What this device owns
  /// Everything: layer l's weights, (D, F) for even l and (F, D) for odd l.
  void load_checkpoint(const Checkpoint& checkpoint) override {
    weights_ = load_all<Replicated>(checkpoint, layer_names(checkpoint));
  }

  /// ## Forward
  /// For two layers: h = ReLU(x W0), out = h W1. Each layer's input is kept, since the gradient of its
  /// weights needs it. It is kept after the ReLU: h > 0 exactly where the argument of the ReLU is.
  Placed forward(Tensor input) override {
    Replicated a(group(), std::move(input));  // (B, D)
    std::vector<Replicated> inputs;
    for (std::size_t l = 0; l < weights_.size(); ++l) {
      if (relu_before(l)) a = relu(std::move(a));  // (B, F)   h = max(z, 0)
      Replicated out = matmul(a, weights_[l]);     // (B, F) for even l, (B, D) for odd l
      inputs.push_back(std::move(a));
      a = std::move(out);
    }
    tape_.push(std::move(inputs));
    return a;
  }

  /// ## Backward
  /// For two layers: dW1 = hᵀ dout, dh = dout W1ᵀ, dz = dh where h > 0, dW0 = xᵀ dz, dx = dz W0ᵀ.
  Gradients backward(Tensor dout) override {
    auto [inputs] = tape_.pop();
    Replicated d(group(), std::move(dout));  // like the output
    Gradients gradients;
    for (std::size_t l = weights_.size(); l-- > 0; inputs.pop_back()) {
      const Replicated& a = inputs[l];                                          // (B, D) or (B, F)
      gradients.put(layer_name(l), matmul(transposed(a), d));                   // like the weights
      if (l > 0 || wants_input_grad()) d = matmul(d, transposed(weights_[l]));  // like a
      if (relu_before(l)) d = relu_backward(std::move(d), a);
    }
    if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));  // (B, D)
    return gradients;
  }

  Placement input_layout() const override { return Placement::replicated(); }

  Trainables trainable() override { return layers(weights_); }

 private:
  std::vector<Replicated> weights_;     // (D, F), (F, D), ...
  Tape<std::vector<Replicated>> tape_;  // each layer's input
};

}  // namespace shard::single_device
