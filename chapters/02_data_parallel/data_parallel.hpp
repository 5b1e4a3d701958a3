#pragma once

///     ./chapters/run 02 -n 4
///
/// The rows of the batch are divided; every device has the whole model. The forward pass needs no
/// communication. The gradient of a weight is a sum over rows, so each device computes one addend of it, and an
/// all-reduce makes the sum. All else is chapter 01.
/// Builds on: 01_single_device.

#include "engine/engines/sharded_engine.hpp"
#include "engine/workloads/mlp/layers.hpp"

namespace shard::data_parallel {

class DataParallel : public ShardedEngine {
 public:
  using ShardedEngine::ShardedEngine;

  /// ## What this device owns
  /// Everything, and so does every other device: N copies of the model.
  void load_checkpoint(const Checkpoint& checkpoint) override {
    weights_ = load_all<Replicated>(checkpoint, layer_names(checkpoint));
  }

  /// ## Forward
  /// As on one device, on this device's rows of the batch: b of B, where b is B/N or one more.
  Placed forward(Tensor input) override {
    Sharded<0> a = my_rows(std::move(input));  // (b, D)
    std::vector<Sharded<0>> inputs;
    for (std::size_t l = 0; l < weights_.size(); ++l) {
      if (relu_before(l)) a = relu(std::move(a));  // (b, F)   h = max(z, 0)
      Sharded<0> out = matmul(a, weights_[l]);     // (b, F) or (b, D)    S0·R = S0
      inputs.push_back(std::move(a));
      a = std::move(out);
    }
    tape_.push(std::move(inputs));
    return a;
  }

  /// ## Backward
  /// As on one device, and then one new thing: an all-reduce turns each Partial into a sum. It makes sums, not
  /// means: the loss has already divided dL/dout by the rows of the whole batch.
  Gradients backward(Tensor dout) override {
    auto [inputs] = tape_.pop();
    Sharded<0> d = my_rows(std::move(dout), inputs[0]);  // like the output
    Gradients gradients;
    for (std::size_t l = weights_.size(); l-- > 0; inputs.pop_back()) {
      const Sharded<0>& a = inputs[l];                          // (b, D) or (b, F)
      Partial dw = matmul(transposed(a), d);                    // like the weights    S0ᵀ·S0 = S1·S0 = P
      gradients.put(layer_name(l), all_reduce(std::move(dw)));  // P → R
      if (l > 0 || wants_input_grad()) d = matmul(d, transposed(weights_[l]));  // like a    S0·R = S0
      if (relu_before(l)) d = relu_backward(std::move(d), a);
    }
    if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));  // (b, D)
    return gradients;
  }

  Placement input_layout() const override { return Placement::sharded(0); }

  Trainables trainable() override { return layers(weights_); }

 private:
  std::vector<Replicated> weights_;     // (D, F), (F, D), ...
  Tape<std::vector<Sharded<0>>> tape_;  // each layer's input, my rows
};

}  // namespace shard::data_parallel
