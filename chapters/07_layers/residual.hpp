#pragma once

/// A residual block: y = x + ReLU(x W0) W1. It can be cut like the block of chapter 03, if x is added once.

#include "layer.hpp"

namespace shard::layer_cuts {

/// The block, whole or with its rows cut.
template <Layout Rows>
class Residual : public Layer {
 public:
  using Layer::Layer;
  static constexpr SourceLine shown_at = SourceLine::current();
  void load_checkpoint(const Checkpoint& c) override {
    w0_ = load_replicated(c, "w0"), w1_ = load_replicated(c, "w1");
  }
  Placement input_layout() const override { return layout_of<Rows>(); }

  Placed forward(Tensor x) override {
    x_ = input<Rows>(std::move(x));  // (B, D)
    h_ = relu(matmul(x_, w0_));      // (B, F)
    return matmul(h_, w1_) + x_;     // (B, D)
  }
  Gradients backward(Tensor dy) override {
    const Rows d = rows_like(x_, std::move(dy));                    // (B, D)
    const Rows dz = relu_backward(matmul(d, transposed(w1_)), h_);  // (B, F)
    Gradients gradients;
    gradients.put("w1", summed(matmul(transposed(h_), d)));
    gradients.put("w0", summed(matmul(transposed(x_), dz)));
    gradients.put(Gradients::input_grad, matmul(dz, transposed(w0_)) + d);  // both ways to x
    return gradients;
  }

 private:
  Replicated w0_, w1_;  // (D, F), (F, D)
  Rows x_, h_;
};

/// Each device has some of the hidden features. The product is a Partial and x is Replicated: + does not
/// compile before the sum is made. The naive cut adds x on every device, so that the sum has it N times.
template <bool is_naive>
class ResidualByFeatures : public Layer {
 public:
  using Layer::Layer;
  static constexpr SourceLine shown_at = SourceLine::current();
  void load_checkpoint(const Checkpoint& c) override {
    w0_ = load_sharded<1>(c, "w0"), w1_ = load_sharded<0>(c, "w1");
  }
  Placement input_layout() const override { return Placement::replicated(); }

  Placed forward(Tensor x) override {
    x_ = Replicated(group(), std::move(x));  // (B, D)
    h_ = relu(matmul(x_, w0_));              // (B, F/N)   R·S1 = S1
    if constexpr (is_naive)
      return all_reduce(Partial(group(), add(matmul(h_.local(), w1_.local()), x_.local())));
    return all_reduce(matmul(h_, w1_)) + x_;  // (B, D)   S1·S0 = P → R, and then x
  }
  Gradients backward(Tensor dy) override {
    const Replicated d(group(), std::move(dy));                           // (B, D)
    const Sharded<1> dz = relu_backward(matmul(d, transposed(w1_)), h_);  // (B, F/N)
    Gradients gradients;
    gradients.put("w1", matmul(transposed(h_), d));   // (F/N, D)   S0·R = S0
    gradients.put("w0", matmul(transposed(x_), dz));  // (D, F/N)   R·S1 = S1
    gradients.put(Gradients::input_grad, all_reduce(matmul(dz, transposed(w0_))) + d);  // P → R, and then d
    return gradients;
  }

 private:
  Sharded<1> w0_;  // (D, F/N)
  Sharded<0> w1_;  // (F/N, D)
  Replicated x_;
  Sharded<1> h_;
};

}  // namespace shard::layer_cuts
