#pragma once

/// A residual block: y = x + ReLU(x W0) W1. It can be cut like the block of chapter 03, if x is added once.

#include "engine/layers/feed_forward.hpp"
#include "layer.hpp"

namespace shard::layer_cuts {

/// The block, whole or with its rows cut.
template <Layout Rows>
class Residual : public Layer {
 public:
  using Layer::Layer;
  static constexpr SourceLine shown_at = SourceLine::current();
  void load_checkpoint(const Checkpoint& c) override {
    w_.up = load_replicated(c, "w0"), w_.down = load_replicated(c, "w1");
  }
  Placement input_layout() const override { return layout_of<Rows>(); }

  Placed forward(Tensor x) override {
    x_ = input<Rows>(std::move(x));                                // (B, D)
    return feed_forward(x_, w_, how(), kept_, Hidden::relu) + x_;  // (B, D)
  }
  Gradients backward(Tensor dy) override {
    const Rows d = rows_like(x_, std::move(dy));  // (B, D)
    auto of = feed_forward_backward(d, x_, w_, how(), std::move(kept_), Hidden::relu);
    Gradients gradients;
    gradients.put("w0", summed(std::move(of.up)));
    gradients.put("w1", summed(std::move(of.down)));
    gradients.put(Gradients::input_grad, std::move(of.n) + d);  // both ways to x
    return gradients;
  }

 private:
  FeedForward<Replicated, Replicated> w_;  // (D, F), (F, D)
  Rows x_;
  FeedForwardKept<Rows> kept_;  // (B, F)
};

/// Each device has some of the hidden features. The product is a Partial and x is Replicated: + does not
/// compile before the sum is made. The naive cut adds x on every device, so that the sum has it N times.
template <bool is_naive>
class ResidualByFeatures : public Layer {
 public:
  using Layer::Layer;
  static constexpr SourceLine shown_at = SourceLine::current();
  void load_checkpoint(const Checkpoint& c) override {
    w_.up = load_sharded<1>(c, "w0"), w_.down = load_sharded<0>(c, "w1");
  }
  Placement input_layout() const override { return Placement::replicated(); }

  Placed forward(Tensor x) override {
    x_ = Replicated(group(), std::move(x));                        // (B, D)
    Partial y = feed_forward(x_, w_, how(), kept_, Hidden::relu);  // (B, D)   R·S1·S0 = P
    if constexpr (is_naive) return all_reduce(Partial(group(), add(addend_of(std::move(y)), x_.local())));
    return all_reduce(std::move(y)) + x_;  // P → R, and then x
  }
  Gradients backward(Tensor dy) override {
    const Replicated d(group(), std::move(dy));  // (B, D)
    auto of = feed_forward_backward(d, x_, w_, how(), std::move(kept_), Hidden::relu);
    Gradients gradients;
    gradients.put("w0", std::move(of.up));                                  // (D, F/N)   Rᵀ·S1 = S1
    gradients.put("w1", std::move(of.down));                                // (F/N, D)   S1ᵀ·R = S0
    gradients.put(Gradients::input_grad, all_reduce(std::move(of.n)) + d);  // P → R, and then d
    return gradients;
  }

 private:
  FeedForward<Sharded<1>, Sharded<0>> w_;  // (D, F/N), (F/N, D)
  Replicated x_;
  FeedForwardKept<Sharded<1>> kept_;  // (B, F/N)
};

}  // namespace shard::layer_cuts
