#pragma once

///     ./chapters/run 06 -n 4 train --variant zero1
///
/// Data parallel with the optimizer's state divided (Rajbhandari et al. 2020, "ZeRO", section 5.1; Xu et al.
/// 2020, "Automatic Cross-Replica Sharding of Weight Update"). To update some rows of a parameter, the
/// optimizer needs the gradient of just those rows. So gradients are reduce-scattered, each device updates
/// its rows, and the new rows are gathered. These are the two halves of an all-reduce, with the optimizer
/// between them, so data parallel sends as many bytes.
/// Builds on: 02_data_parallel/accumulated.hpp.

#include "engine/engines/sharded_engine.hpp"
#include "engine/workloads/mlp/layers.hpp"

namespace shard::fully_sharded {

class Zero1 : public ShardedEngine {
 public:
  Zero1(Communicator& group, Index micro_batches = 1) : ShardedEngine(group), micro_batches_(micro_batches) {}

  /// ## What this device owns
  /// All parameters, like every device, and the optimizer's state for its rows of each parameter.
  void load_checkpoint(const Checkpoint& checkpoint) override {
    weights_ = load_all<Replicated>(checkpoint, layer_names(checkpoint));
  }

  /// ## Forward
  /// As in data parallel, on my rows of the batch.
  Placed forward(Tensor input) override { return forward_rows(my_rows(std::move(input))); }

  /// ## Backward
  /// As in data parallel, but each device gets only the rows of the sum that it uses: P → S0 and not P → R.
  Gradients backward(Tensor dout) override {
    std::vector<Partial> dw(weights_.size());
    Sharded<0> dx = backward_rows(std::move(dout), dw);
    return reduce(std::move(dw), std::move(dx));
  }

  /// ## The step
  /// The optimizer gets this device's rows and their gradient. It keeps state for just these rows, so over
  /// all devices the state exists once.
  Trainables trainable() override {
    return layers(weights_).slice(num_devices(), device_id());  // D/N of the rows, or F/N
  }

  /// After the update, only this device's rows are new, so `Replicated` is not true until the others send
  /// theirs.
  void after_step() override {
    for (Replicated& w : weights_) {
      Sharded<0> mine = shard<0>(w);  // (D/N, F)    R → S0: what I have updated
      w = Replicated();
      w = as_parameter(all_gather(std::move(mine)));  // (D, F)    S0 → R
    }
  }

  /// ## Gradient accumulation
  /// A device works on its rows in pieces. It adds up whole addends and reduces their sum once, at the end.
  Gradients forward_backward(Tensor input, const LossGradient& loss_gradient) override {
    std::vector<Partial> dw(weights_.size());
    Sharded<0> dx = in_pieces(
        my_rows(std::move(input)), micro_batches_, loss_gradient,
        [&](Sharded<0> piece) { return forward_rows(std::move(piece)); },  // (b/M, D)
        [&](Tensor dout) { return backward_rows(std::move(dout), dw); });
    return reduce(std::move(dw), std::move(dx));
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

  /// Each device keeps its rows of each sum.
  Gradients reduce(std::vector<Partial> dw, Sharded<0> dx) {
    Gradients gradients;
    for (std::size_t l = weights_.size(); l-- > 0;)
      gradients.put(layer_name(l), reduce_scatter<0>(std::move(dw[l])));  // (D/N, F)    P → S0
    if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(dx));
    return gradients;
  }

  Index micro_batches_;
  std::vector<Replicated> weights_;     // (D, F), (F, D), ...
  Tape<std::vector<Sharded<0>>> tape_;  // each layer's input, my rows
};

}  // namespace shard::fully_sharded
