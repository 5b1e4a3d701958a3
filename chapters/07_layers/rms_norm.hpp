#pragma once

/// RMSNorm (Zhang and Sennrich 2019): y = x̂ w with x̂ = x r, where r = 1/√(mean of x² + ε) is one number a
/// row (engine/layers/rms_norm.cpp computes it). Rows do not see one another, so a cut of rows is free. A cut
/// of features costs the row's sums.

#include "engine/layers/rms_norm.hpp"
#include "layer.hpp"

namespace shard::layer_cuts {

/// RMSNorm, whole or with its rows cut.
template <Layout Rows>
class RmsNorm : public Layer {
 public:
  using Layer::Layer;
  static constexpr SourceLine shown_at = SourceLine::current();
  void load_checkpoint(const Checkpoint& c) override { w_ = load_replicated(c, "weights"); }
  Placement input_layout() const override { return layout_of<Rows>(); }

  Placed forward(Tensor rows) override {
    return shard::rms_norm(input<Rows>(std::move(rows)), w_, norm_epsilon, how(), kept_);  // (B, D)
  }
  Gradients backward(Tensor dy) override {
    SumOverRows<Rows> dw;  // (D)
    Rows dx = rms_norm_backward(input<Rows>(std::move(dy)), w_, how(), kept_, dw);
    Gradients gradients;
    gradients.put("weights", summed(std::move(dw)));      // R, or P → R
    gradients.put(Gradients::input_grad, std::move(dx));  // (B, D)
    return gradients;
  }

 private:
  Replicated w_;  // (D)
  Normed kept_;   // (B, D) and (B)
};

/// RMSNorm with its features cut. The sums over the features are addends: one number a row, in each
/// direction. The naive cut normalises with the mean of its own features.
template <bool is_naive>
class RmsNormByFeatures : public Layer {
 public:
  using Layer::Layer;
  static constexpr SourceLine shown_at = SourceLine::current();
  void load_checkpoint(const Checkpoint& c) override { w_ = load_sharded<0>(c, "weights"); }
  Placement input_layout() const override { return Placement::sharded(1); }

  Placed forward(Tensor columns) override {
    return like_input(shard::rms_norm(columns, w_.local(), norm_epsilon, how(), kept_, mean()));  // (B, D/N)
  }
  Gradients backward(Tensor dy) override {
    Tensor dw;  // (D/N)
    Tensor dx = rms_norm_backward(std::move(dy), w_.local(), how(), kept_, dw, mean());
    Gradients gradients;
    gradients.put("weights", as(w_, std::move(dw)));
    gradients.put(Gradients::input_grad, like_input(std::move(dx)));  // (B, D/N)
    return gradients;
  }

 private:
  /// Makes of the sums over my features the means over all.
  MeanOfRows mean() {
    if constexpr (is_naive) return mean_over(w_.local().size());
    return [this](Tensor sum) {
      const Replicated whole = all_reduce(Partial(group(), std::move(sum)));  // (B)   P → R
      return scale(whole.local().clone(), 1 / static_cast<float>(w_.global_shape()[0]));
    };
  }
  Sharded<1> like_input(Tensor columns) const {
    const Shape shape = {columns.extent(0), w_.global_shape()[0]};
    return Sharded<1>(group(), std::move(columns), shape, w_.offset());
  }

  Sharded<0> w_;  // (D/N)
  Normed kept_;   // (B, D/N) and (B)
};

}  // namespace shard::layer_cuts
