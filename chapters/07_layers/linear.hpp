#pragma once

/// Linear: y = x W. Its batch is free, and each of the matrix's axes costs one sum.

#include "layer.hpp"

namespace shard::layer_cuts {

/// The layer, whole (Rows is Replicated) or with its rows cut (Sharded<0>). The lines are the same. Where the
/// rows are cut, a device has the weights' gradient of its rows: an addend.
template <Layout Rows>
class Linear : public Layer {
 public:
  using Layer::Layer;
  static constexpr SourceLine shown_at = SourceLine::current();
  void load_checkpoint(const Checkpoint& checkpoint) override { w_ = load_replicated(checkpoint, "weights"); }
  Placement input_layout() const override { return layout_of<Rows>(); }

  Placed forward(Tensor x) override {
    x_ = input<Rows>(std::move(x));  // (B, I)
    return matmul(x_, w_);           // (B, O)   R·R = R, S0·R = S0
  }
  Gradients backward(Tensor dy) override {
    const Rows d = rows_like(x_, std::move(dy));  // (B, O)
    Gradients gradients;
    gradients.put("weights", summed(matmul(transposed(x_), d)));      // (I, O)   R, or S1·S0 = P
    gradients.put(Gradients::input_grad, matmul(d, transposed(w_)));  // (B, I)
    return gradients;
  }

 private:
  Replicated w_;  // (I, O)
  Rows x_;
};

/// Each device has some columns of W: output features. The forward pass sends nothing; dL/dx is a sum.
class LinearByOutputs : public Layer {
 public:
  using Layer::Layer;
  static constexpr SourceLine shown_at = SourceLine::current();
  void load_checkpoint(const Checkpoint& c) override { w_ = load_sharded<1>(c, "weights"); }
  Placement input_layout() const override { return Placement::replicated(); }

  Placed forward(Tensor x) override {
    x_ = Replicated(group(), std::move(x));  // (B, I)
    Sharded<1> y = matmul(x_, w_);           // (B, O/N)   R·S1 = S1
    offset_ = y.offset(), shape_ = y.global_shape();
    return y;
  }
  Gradients backward(Tensor dy) override {
    const Sharded<1> d(group(), std::move(dy), shape_, offset_);  // (B, O/N)
    Gradients gradients;
    gradients.put("weights", matmul(transposed(x_), d));                          // (I, O/N)   R·S1 = S1
    gradients.put(Gradients::input_grad, all_reduce(matmul(d, transposed(w_))));  // (B, I)   S1·S0 = P → R
    return gradients;
  }

 private:
  Sharded<1> w_;  // (I, O/N)
  Replicated x_;
  Shape shape_;
  Index offset_ = 0;
};

/// Each device has some rows of W: input features. The output is a sum; the backward pass sends nothing. The
/// naive cut takes a device's addend for the output.
template <bool is_naive>
class LinearByInputs : public Layer {
 public:
  using Layer::Layer;
  static constexpr SourceLine shown_at = SourceLine::current();
  void load_checkpoint(const Checkpoint& c) override { w_ = load_sharded<0>(c, "weights"); }
  Placement input_layout() const override { return Placement::sharded(1); }

  Placed forward(Tensor x) override {
    const Index rows = x.extent(0);
    x_ = Sharded<1>(group(), std::move(x), {rows, w_.global_shape()[0]}, w_.offset());   // (B, I/N)
    if constexpr (is_naive) return Replicated(group(), matmul(x_.local(), w_.local()));  // one addend!
    return all_reduce(matmul(x_, w_));  // (B, O)   S1·S0 = P → R
  }
  Gradients backward(Tensor dy) override {
    const Replicated d(group(), std::move(dy));  // (B, O)
    Gradients gradients;
    gradients.put("weights", matmul(transposed(x_), d));              // (I/N, O)   S0·R = S0
    gradients.put(Gradients::input_grad, matmul(d, transposed(w_)));  // (B, I/N)   R·S1 = S1
    return gradients;
  }

 private:
  Sharded<0> w_;  // (I/N, O)
  Sharded<1> x_;
};

}  // namespace shard::layer_cuts
