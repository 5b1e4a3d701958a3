#pragma once

///     ./chapters/run 06 -n 4 train --variant zero3
///
/// Parameters divided too: the model is fully sharded (Rajbhandari et al. 2020, "ZeRO", section 5.3; Zhao et
/// al. 2023, "PyTorch FSDP", section 3). A device keeps its rows of each parameter. A layer's weights are
/// gathered just before they are used and freed just after, in the forward pass and again in the backward
/// pass. Computing is as in data parallel: each device with whole weights on its rows of the batch.
/// Builds on: 06_fully_sharded/zero2.hpp.

#include "engine/sharded_engine.hpp"

namespace shard {

class Zero3 : public ShardedEngine {
 public:
  /// ## What this device owns
  /// D/N rows of each even layer, F/N of each odd one, and their gradients and state. It may be none at all.
  void load_checkpoint(const Checkpoint& checkpoint) override {
    shards_.clear();
    for (Index l = 0; l < model_of(checkpoint).num_layers; ++l)
      shards_.push_back(load_sharded<0>(checkpoint, layer_name(l)));
  }

  /// ## Forward
  /// Gather, compute, discard.
  Placed forward(Tensor input) override {
    Sharded<0> a = my_rows(std::move(input));  // (b, D)
    std::vector<Sharded<0>> inputs;
    for (const Sharded<0>& shard : shards_) {
      if (inputs.size() % 2 == 1) a = relu(std::move(a));  // (b, F)
      Replicated w = all_gather(shard);                    // (D, F)    S0 → R: for this layer, then freed
      Sharded<0> out = matmul(a, w);                       // (b, F) or (b, D)    S0·R = S0
      inputs.push_back(std::move(a));
      a = std::move(out);
    }
    tape_.push(std::move(inputs));
    return a;
  }

  /// ## Backward
  /// A gradient of weights takes the layer's input, and dL/dx takes its weights: so one whole matrix is held
  /// at a time, first the gradient, then the weights.
  Gradients backward(Tensor dout) override {
    auto [inputs] = tape_.pop();
    Shape out_shape = {inputs[0].global_shape()[0], shards_.back().global_shape()[1]};
    Sharded<0> d(std::move(dout), out_shape, inputs[0].offset());  // like the output
    Gradients gradients;
    for (std::size_t l = shards_.size(); l-- > 0; inputs.pop_back()) {
      const Sharded<0>& a = inputs[l];                                 // (b, D) or (b, F)
      Partial dw = matmul(transposed(a), d);                           // (D, F)      S0ᵀ·S0 = S1·S0 = P
      gradients.put(layer_name(l), reduce_scatter<0>(std::move(dw)));  // (D/N, F)    P → S0
      if (l > 0 || wants_input_grad()) {
        Replicated w = all_gather(shards_[l]);  // (D, F)    S0 → R: once more
        d = matmul(d, transposed(w));           // like a    S0·R = S0
      }
      if (l % 2 == 1) d = relu_backward(std::move(d), a);
    }
    if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
    return gradients;
  }

  Placement input_layout() const override { return Placement::sharded(0); }

  /// ## The step
  /// Parameters, gradients and state are cut alike; nothing is gathered after it.
  std::vector<Trainable> trainable(const Gradients& gradients) override {
    std::vector<Trainable> all;
    for (std::size_t l = 0; l < shards_.size(); ++l)
      all.push_back({layer_name(l), Rows(shards_[l].parameter()), &gradients.local(layer_name(l))});
    return all;
  }

 private:
  std::vector<Sharded<0>> shards_;      // (D/N, F), (F/N, D), ...
  Tape<std::vector<Sharded<0>>> tape_;  // each layer's input, my rows
};

}  // namespace shard
