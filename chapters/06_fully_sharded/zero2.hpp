#pragma once

///     ./chapters/run 06 -n 4 train --variant zero2
///
/// Gradients are divided too (Rajbhandari et al. 2020, "ZeRO", section 5.2). A device reduce-scatters a
/// layer's gradient as soon as it has computed it, and keeps only its rows of the sum. So it holds one
/// layer's whole gradient at a time. It sends as many bytes as in the first stage.
/// Builds on: 06_fully_sharded/zero1.hpp.

#include "engine/engines/sharded_engine.hpp"
#include "engine/workloads/mlp/layers.hpp"

namespace shard::fully_sharded {

class Zero2 : public ShardedEngine {
 public:
  Zero2(Communicator& group, Index micro_batches = 1) : ShardedEngine(group), micro_batches_(micro_batches) {}

  /// ## What this device owns
  /// All parameters, and the gradients and the optimizer's state for its rows of each.
  void load_checkpoint(const Checkpoint& checkpoint) override {
    weights_ = load_all<Replicated>(checkpoint, layer_names(checkpoint));
  }

  /// ## Forward
  /// As in data parallel, on my rows of the batch.
  Placed forward(Tensor input) override { return forward_rows(my_rows(std::move(input))); }

  /// ## Backward
  /// As in data parallel, but `backward_rows` reduces each gradient at once and keeps this device's rows.
  Gradients backward(Tensor dout) override {
    std::vector<Sharded<0>> dw(weights_.size());
    Sharded<0> dx = backward_rows(std::move(dout), dw);
    return collect(std::move(dw), std::move(dx));
  }

  /// ## The step
  /// As in the first stage.
  Trainables trainable() override {
    return layers(weights_).slice(num_devices(), device_id());  // D/N of the rows, or F/N
  }

  void after_step() override {
    for (Replicated& w : weights_) {
      Sharded<0> mine = shard<0>(w);  // (D/N, F)    R → S0: what I have updated
      w = Replicated();
      w = as_parameter(all_gather(std::move(mine)));  // (D, F)    S0 → R
    }
  }

  /// ## Gradient accumulation
  /// A device works on its rows of the batch in pieces. It adds up its rows of the reduced gradients, so each
  /// piece's gradients must be reduced: with M pieces, they are sent M times. To reduce once, a device would
  /// have to hold whole addends, as the first stage does.
  Gradients forward_backward(Tensor input, const LossGradient& loss_gradient) override {
    std::vector<Sharded<0>> dw(weights_.size());
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
    for (std::size_t l = 0; l < weights_.size(); ++l) {
      if (relu_before(l)) a = relu(std::move(a));  // (b, F)
      Sharded<0> out = matmul(a, weights_[l]);     // (b, F) or (b, D)    S0·R = S0
      inputs.push_back(std::move(a));
      a = std::move(out);
    }
    tape_.push(std::move(inputs));
    return a;
  }

  /// Adds this device's rows of the weights' gradients to `dw`. Returns dL/dx of its rows, if wanted.
  Sharded<0> backward_rows(Tensor dout, std::vector<Sharded<0>>& dw) {
    auto [inputs] = tape_.pop();
    Sharded<0> d = my_rows(std::move(dout), inputs[0]);  // like the output
    for (std::size_t l = weights_.size(); l-- > 0; inputs.pop_back()) {
      const Sharded<0>& a = inputs[l];                          // (b, D) or (b, F)
      Partial addend = matmul(transposed(a), d);                // (D, F)      S0ᵀ·S0 = S1·S0 = P
      accumulate(dw[l], reduce_scatter<0>(std::move(addend)));  // (D/N, F)    P → S0, at once
      if (l > 0 || wants_input_grad()) d = matmul(d, transposed(weights_[l]));  // like a    S0·R = S0
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
  std::vector<Replicated> weights_;     // (D, F), (F, D), ...
  Tape<std::vector<Sharded<0>>> tape_;  // each layer's input, my rows
};

}  // namespace shard::fully_sharded
