#pragma once

///     ./chapters/run 02 -n 4
///
/// The rows of the batch are divided; every device has the whole model. Forward and backward need no
/// communication. The gradient of a weight is a sum over rows, so each device computes one addend of it. At
/// the end of the step, one all-reduce for each parameter makes the sum.
/// Builds on: 01_single_device.

#include "engine/engines/sharded_engine.hpp"
#include "engine/workloads/mlp/layers.hpp"

namespace shard::data_parallel {

class DataParallel : public ShardedEngine {
 public:
  DataParallel(Communicator& group, Index micro_batches = 1)
      : ShardedEngine(group), micro_batches_(micro_batches) {}

  /// ## What this device owns
  /// Everything, and so does every other device: N copies of the model.
  void load_checkpoint(const Checkpoint& checkpoint) override {
    weights_ = load_all<Replicated>(checkpoint, layer_names(checkpoint));
  }

  /// ## Forward
  /// As on one device, on this device's rows of the batch: b of B, where b is B/N or one more.
  Placed forward(Tensor input) override { return forward_rows(my_rows(std::move(input))); }

  /// ## Backward
  /// As on one device, and then one new thing: an all-reduce turns each Partial into a sum.
  Gradients backward(Tensor dout) override {
    std::vector<Partial> dw(weights_.size());
    Sharded<0> dx = backward_rows(std::move(dout), dw);
    return reduce(std::move(dw), std::move(dx));
  }

  /// ## Gradient accumulation
  /// A device works on its rows in pieces, one after the other, and so holds fewer activations at a time. It
  /// adds up the addends of the pieces. There is still one reduction, at the end.
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
