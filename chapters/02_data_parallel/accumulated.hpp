#pragma once

///     ./chapters/run 02 -n 4 train --variant accumulated --micro-batches 4 --batch 4096
///
/// Data parallel with gradient accumulation. A device works on its rows in pieces, the micro-batches, one after
/// the other, and so holds fewer activations at a time. It adds up the addends of the pieces. There is still
/// one reduction for each parameter, at the end of the step.
/// Builds on: 02_data_parallel/data_parallel.hpp.

#include "engine/engines/sharded_engine.hpp"
#include "engine/workloads/mlp/layers.hpp"

namespace shard::data_parallel {

class AccumulatedDataParallel : public ShardedEngine {
 public:
  AccumulatedDataParallel(Communicator& group, Index micro_batches)
      : ShardedEngine(group), micro_batches_(micro_batches) {}

  /// ## What this device owns
  /// Everything, as in plain data parallel.
  void load_checkpoint(const Checkpoint& checkpoint) override {
    weights_ = load_all<Replicated>(checkpoint, layer_names(checkpoint));
  }

  /// ## Forward
  /// As in plain data parallel, where the rows are one piece.
  Placed forward(Tensor input) override { return forward_rows(my_rows(std::move(input))); }

  /// ## Backward
  /// The addends of one piece, and then the reduction.
  Gradients backward(Tensor dout) override {
    std::vector<Partial> dw(weights_.size());
    Sharded<0> dx = backward_rows(std::move(dout), dw);
    return reduce(std::move(dw), std::move(dx));
  }

  /// ## Gradient accumulation
  /// The same for several pieces: M forward and backward passes add to `dw`, and then there is one reduction.
  Gradients forward_backward(Tensor input, const LossGradient& loss_gradient) override {
    std::vector<Partial> dw(weights_.size());
    Sharded<0> dx = in_pieces(
        my_rows(std::move(input)), micro_batches_, loss_gradient,
        [&](Sharded<0> piece) { return forward_rows(std::move(piece)); },  // (b/M, D)
        [&](Tensor dout) { return backward_rows(std::move(dout), dw); });
    return reduce(std::move(dw), std::move(dx));
  }

  Placement input_layout() const override { return Placement::sharded(0); }

  Trainables trainable() override { return layers(weights_); }

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

  /// Adds this device's addends of the weights' gradients to `dw`. Returns dL/dx of its rows, if wanted.
  Sharded<0> backward_rows(Tensor dout, std::vector<Partial>& dw) {
    auto [inputs] = tape_.pop();
    Sharded<0> d = my_rows(std::move(dout), inputs[0]);  // like the output
    for (std::size_t l = weights_.size(); l-- > 0; inputs.pop_back()) {
      const Sharded<0>& a = inputs[l];              // (b, D) or (b, F)
      accumulate(dw[l], matmul(transposed(a), d));  // like the weights    S0ᵀ·S0 = S1·S0 = P
      if (l > 0 || wants_input_grad()) d = matmul(d, transposed(weights_[l]));  // like a    S0·R = S0
      if (relu_before(l)) d = relu_backward(std::move(d), a);
    }
    return wants_input_grad() ? std::move(d) : Sharded<0>();
  }

  /// All-reduces make sums, not means: the loss has already divided dL/dout by the rows of the whole batch.
  Gradients reduce(std::vector<Partial> dw, Sharded<0> dx) {
    Gradients gradients;
    for (std::size_t l = weights_.size(); l-- > 0;)
      gradients.put(layer_name(l), all_reduce(std::move(dw[l])));  // P → R
    if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(dx));
    return gradients;
  }

  Index micro_batches_;
  std::vector<Replicated> weights_;     // (D, F), (F, D), ...
  Tape<std::vector<Sharded<0>>> tape_;  // each layer's input, my rows
};

}  // namespace shard::data_parallel
