#pragma once

///     ./chapters/run 06 -n 4 train --variant zero2
///
/// Gradients divided too (Rajbhandari et al. 2020, "ZeRO", section 5.2). A layer's gradient is
/// reduce-scattered as soon as it is there, and only my rows of the sum are kept: one layer's whole gradient
/// is held at a time. The bytes sent are those of the first stage.
/// Builds on: 06_fully_sharded/zero1.hpp.

#include "engine/sharded_engine.hpp"
#include "engine/workloads/mlp_model.hpp"

namespace shard::fully_sharded {

class Zero2 : public ShardedEngine {
 public:
  explicit Zero2(Index micro_batches = 1) : micro_batches_(micro_batches) {}

  /// ## What this device owns
  /// All parameters; gradients and the optimizer's state for its rows of each.
  void load_checkpoint(const Checkpoint& checkpoint) override {
    weights_.clear();
    for (Index l = 0; l < model_of(checkpoint).num_layers; ++l)
      weights_.push_back(load_replicated(checkpoint, layer_name(l)));
  }

  /// ## Forward
  /// As in data parallel, on my rows of the batch.
  Placed forward(Tensor input) override { return forward_rows(my_rows(std::move(input))); }

  /// ## Backward
  /// `backward_rows` leaves my rows of each gradient.
  Gradients backward(Tensor dout) override {
    std::vector<Sharded<0>> dw(weights_.size());
    Sharded<0> dx = backward_rows(std::move(dout), dw);
    return collect(std::move(dw), std::move(dx));
  }

  /// ## The step
  /// As in the first stage.
  std::vector<Trainable> trainable(const Gradients& gradients) override {
    std::vector<Trainable> all;
    for (std::size_t l = 0; l < weights_.size(); ++l) {
      Tensor& w = weights_[l].parameter();
      Range mine = part(w.extent(0), num_devices(), device_id());  // D/N of the rows, or F/N
      all.push_back({layer_name(l), Rows(w, mine.begin, mine.end), &gradients.local(layer_name(l))});
    }
    return all;
  }

  void after_step() override {
    for (Replicated& w : weights_) {
      Sharded<0> mine = shard<0>(w);  // (D/N, F)    R → S0: what I have updated
      w = Replicated();
      w = all_gather(std::move(mine));  // (D, F)    S0 → R
      w.parameter().charge_to(Purpose::parameters);
    }
  }

  /// ## Gradient accumulation
  /// My rows of the batch in pieces. What adds up is my rows of the sums, so each piece's gradients are
  /// reduced: M pieces send them M times. To reduce whole addends once, one has to hold them, as the first
  /// stage does.
  Gradients forward_backward(Tensor input, const LossGradient& loss_gradient) override {
    if (micro_batches_ == 1) return ShardedEngine::forward_backward(std::move(input), loss_gradient);
    Sharded<0> x = my_rows(std::move(input));  // (b, D)
    std::vector<Sharded<0>> dw(weights_.size());
    Sharded<0> dx;
    if (wants_input_grad())
      dx = {Tensor::uninitialized(x.local().shape()), x.global_shape(), x.offset()};  // (b, D)
    for (int m = 0; m < micro_batches_; ++m) {
      Range rows = part(x.local().extent(0), static_cast<int>(micro_batches_), m);
      Tensor piece = slice(x.local(), 0, rows.begin, rows.end);  // (b/M, D)
      Tensor dout;
      {
        Placed out = forward_rows({std::move(piece), x.global_shape(), x.offset() + rows.begin});
        dout = loss_gradient(out.local(), out.first_row());
      }
      Sharded<0> dpiece = backward_rows(std::move(dout), dw);
      if (wants_input_grad()) assign(Rows(dx.parameter(), rows.begin, rows.end), dpiece.local());
    }
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

  /// Adds my rows of the weights' gradients to `dw`; returns dL/dx of these rows, if it is wanted.
  Sharded<0> backward_rows(Tensor dout, std::vector<Sharded<0>>& dw) {
    auto [inputs] = tape_.pop();
    Shape out_shape = {inputs[0].global_shape()[0], weights_.back().global_shape()[1]};
    Sharded<0> d(std::move(dout), out_shape, inputs[0].offset());  // like the output
    for (std::size_t l = weights_.size(); l-- > 0; inputs.pop_back()) {
      const Sharded<0>& a = inputs[l];  // (b, D) or (b, F)
      {
        Partial addend = matmul(transposed(a), d);              // (D, F)      S0ᵀ·S0 = S1·S0 = P
        Sharded<0> sum = reduce_scatter<0>(std::move(addend));  // (D/N, F)    P → S0, at once
        dw[l] = dw[l].is_empty() ? std::move(sum) : std::move(dw[l]) + sum;
      }
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
