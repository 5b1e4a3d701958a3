#pragma once

/// Norms over the features of a row: y = x̂ w with x̂ = x r, where r = 1/√(mean of x² + ε) is one number a row
/// (RMSNorm, Zhang and Sennrich 2019); LayerNorm (Ba et al. 2016) takes the row's mean off first, and adds b.
/// Rows do not see one another, so a cut of rows is free. A cut of features costs the row's sums.

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

  Placed forward(Tensor input_rows) override {
    const Rows x = input<Rows>(std::move(input_rows));                                  // (B, D)
    r_ = rounded(inverse_root(mean(row_dots(x.local(), x.local())), 1, norm_epsilon));  // (B)
    x_hat_ = as(x, rounded(scale_rows(x.local().clone(), r_)));                         // (B, D)
    return as(x, scale_columns(x_hat_.local().clone(), w_.local()));                    // (B, D)
  }
  /// dx = r (dx̂ − x̂ · mean of dx̂ x̂), with dx̂ = dy w.
  Gradients backward(Tensor dy) override {
    Gradients gradients;
    gradients.put("weights", over_rows(x_hat_, column_dots(dy, x_hat_.local())));  // (D)
    Tensor d = scale_columns(std::move(dy), w_.local());                           // (B, D)
    const Tensor c = rounded(mean(row_dots(d, x_hat_.local())));                   // (B)
    d = subtract(std::move(d), rounded(scale_rows(x_hat_.local().clone(), c)));    // (B, D)
    gradients.put(Gradients::input_grad, as(x_hat_, rounded(scale_rows(std::move(d), r_))));
    return gradients;
  }

 private:
  Tensor mean(Tensor sum) const { return scale(std::move(sum), 1 / static_cast<float>(w_.local().size())); }

  Replicated w_;  // (D)
  Rows x_hat_;    // (B, D)
  Tensor r_;      // (B)
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

  Placed forward(Tensor input_columns) override {
    const Shape shape = {input_columns.extent(0), w_.global_shape()[0]};
    const Sharded<1> x(group(), std::move(input_columns), shape, w_.offset());          // (B, D/N)
    r_ = rounded(inverse_root(mean(row_dots(x.local(), x.local())), 1, norm_epsilon));  // (B)
    x_hat_ = as(x, rounded(scale_rows(x.local().clone(), r_)));                         // (B, D/N)
    return as(x, scale_columns(x_hat_.local().clone(), w_.local()));                    // (B, D/N)
  }
  Gradients backward(Tensor dy) override {
    Gradients gradients;
    gradients.put("weights", as(w_, column_dots(dy, x_hat_.local())));           // (D/N)
    Tensor d = scale_columns(std::move(dy), w_.local());                         // (B, D/N)
    const Tensor c = rounded(mean(row_dots(d, x_hat_.local())));                 // (B)
    d = subtract(std::move(d), rounded(scale_rows(x_hat_.local().clone(), c)));  // (B, D/N)
    gradients.put(Gradients::input_grad, as(x_hat_, rounded(scale_rows(std::move(d), r_))));
    return gradients;
  }

 private:
  /// The mean over all features, of a sum over mine.
  Tensor mean(Tensor sum) {
    if constexpr (is_naive) return scale(std::move(sum), 1 / static_cast<float>(w_.local().size()));
    const Replicated whole = all_reduce(Partial(group(), std::move(sum)));  // (B)   P → R
    return scale(whole.local().clone(), 1 / static_cast<float>(w_.global_shape()[0]));
  }

  Sharded<0> w_;      // (D/N)
  Sharded<1> x_hat_;  // (B, D/N)
  Tensor r_;          // (B)
};

}  // namespace shard::layer_cuts
