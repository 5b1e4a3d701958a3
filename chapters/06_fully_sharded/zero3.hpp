#pragma once

///     ./chapters/run 06 -n 4 train --variant zero3
///
/// Parameters are divided too: the model is fully sharded (Rajbhandari et al. 2020, "ZeRO", section 5.3; Zhao
/// et al. 2023, "PyTorch FSDP", section 3). A device keeps its rows of each parameter. It gathers a layer's
/// weights just before it uses them and frees them just after, in the forward pass and again in the backward
/// pass. It computes as in data parallel: with whole weights, on its rows of the batch.
/// Builds on: 06_fully_sharded/zero2.hpp.

#include "engine/engines/sharded_engine.hpp"
#include "engine/workloads/mlp/layers.hpp"

namespace shard::fully_sharded {

class Zero3 : public ShardedEngine {
 public:
  Zero3(Communicator& group, Index micro_batches = 1) : ShardedEngine(group), micro_batches_(micro_batches) {}

  /// ## What this device owns
  /// D/N rows of each even layer, F/N of each odd one, and their gradients and state. A device may have none.
  void load_checkpoint(const Checkpoint& checkpoint) override {
    shards_ = load_all<Sharded<0>>(checkpoint, layer_names(checkpoint));
  }

  /// ## Forward
  /// For each layer: gather its weights, compute on this device's rows of the batch, free the weights.
  Placed forward(Tensor input) override { return forward_rows(my_rows(std::move(input))); }

  /// ## Backward
  Gradients backward(Tensor dout) override {
    std::vector<Sharded<0>> dw(shards_.size());
    Sharded<0> dx = backward_rows(std::move(dout), dw);
    return collect(std::move(dw), std::move(dx));
  }

  /// ## The step
  /// Parameters, gradients and state are divided alike, so nothing is gathered after the step.
  Trainables trainable() override { return layers(shards_); }

  /// ## Gradient accumulation
  /// As in the second stage, a device adds up its rows of the sums. Each piece gathers the weights again.
  Gradients forward_backward(Tensor input, const LossGradient& loss_gradient) override {
    std::vector<Sharded<0>> dw(shards_.size());
    Sharded<0> dx = in_pieces(
        my_rows(std::move(input)), micro_batches_, loss_gradient,
        [&](Sharded<0> piece) { return forward_rows(std::move(piece)); },  // (b/M, D)
        [&](Tensor dout) { return backward_rows(std::move(dout), dw); });
    return collect(std::move(dw), std::move(dx));
  }

  Placement input_layout() const override { return Placement::sharded(0); }

 private:
  Placed forward_rows(Sharded<0> a) {  // (b, D)
    std::vector<Sharded<0>> inputs;
    for (std::size_t l = 0; l < shards_.size(); ++l) {
      if (relu_before(l)) a = relu(std::move(a));          // (b, F)
      ReplicatedFactor w = all_gather_factor(shards_[l]);  // (D, F)    S0 → R: for this layer, then freed
      Sharded<0> out = matmul(a, w);                       // (b, F) or (b, D)    S0·R = S0
      inputs.push_back(std::move(a));
      a = std::move(out);
    }
    tape_.push(std::move(inputs));
    return a;
  }

  /// Adds this device's rows of the weights' gradients to `dw`. Returns dL/dx of its rows, if wanted. A
  /// device holds one whole matrix at a time: first a layer's gradient, which needs no weights, then its
  /// weights, for dL/dx.
  Sharded<0> backward_rows(Tensor dout, std::vector<Sharded<0>>& dw) {
    auto [inputs] = tape_.pop();
    Sharded<0> d = my_rows(std::move(dout), inputs[0]);  // like the output
    for (std::size_t l = shards_.size(); l-- > 0; inputs.pop_back()) {
      const Sharded<0>& a = inputs[l];                          // (b, D) or (b, F)
      Partial addend = matmul(transposed(a), d);                // (D, F)      S0ᵀ·S0 = S1·S0 = P
      accumulate(dw[l], reduce_scatter<0>(std::move(addend)));  // (D/N, F)    P → S0, at once
      if (l > 0 || wants_input_grad()) {
        ReplicatedFactor w = all_gather_factor(shards_[l]);  // (D, F)    S0 → R: once more
        d = matmul(d, transposed(w));                        // like a    S0·R = S0
      }
      if (relu_before(l)) d = relu_backward(std::move(d), a);
    }
    return wants_input_grad() ? std::move(d) : Sharded<0>();
  }

  Gradients collect(std::vector<Sharded<0>> dw, Sharded<0> dx) {
    Gradients gradients;
    for (std::size_t l = 0; l < dw.size(); ++l) gradients.put(layer_name(l), std::move(dw[l]));
    if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(dx));
    return gradients;
  }

  Index micro_batches_;
  std::vector<Sharded<0>> shards_;      // (D/N, F), (F/N, D), ...
  Tape<std::vector<Sharded<0>>> tape_;  // each layer's input, my rows
};

}  // namespace shard::fully_sharded
