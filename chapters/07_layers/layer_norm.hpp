#pragma once

/// LayerNorm (Ba et al. 2016): y = x̂ w + b with x̂ = (x − μ) r, where μ is the mean of a row's features and
/// r = 1/√(their variance + ε). It can be cut as RMSNorm can: rows are free, features cost the row's sums.

#include "engine/device/layer_operations.hpp"
#include "layer.hpp"

namespace shard::layer_cuts {

/// LayerNorm, whole or with its rows cut.
template <Layout Rows>
class LayerNorm : public Layer {
 public:
  using Layer::Layer;
  static constexpr SourceLine shown_at = SourceLine::current();
  void load_checkpoint(const Checkpoint& c) override {
    w_ = load_replicated(c, "weights"), b_ = load_replicated(c, "bias");
  }
  Placement input_layout() const override { return layout_of<Rows>(); }

  Placed forward(Tensor input_rows) override {
    Rows x = input<Rows>(std::move(input_rows));                                           // (B, D)
    const Tensor mean = mean_of(row_sums(x.local()));                                      // (B)
    Tensor variance = mean_of(row_dots(x.local(), x.local()));                             // (B)  of x²
    variance = subtract(std::move(variance), multiply(mean.clone(), mean));                // (B)
    r_ = rounded(inverse_root(std::move(variance), 1, norm_epsilon));                      // (B)
    Tensor centred = add_to_columns(x.local().clone(), rounded(scale(mean.clone(), -1)));  // (B, D)
    x_hat_ = as(x, rounded(scale_rows(std::move(centred), r_)));                           // (B, D)
    return as(x, add_to_rows(scale_columns(x_hat_.local().clone(), w_.local()), b_.local()));
  }
  /// dx = r (dx̂ − mean of dx̂ − x̂ · mean of dx̂ x̂), with dx̂ = dy w.
  Gradients backward(Tensor dy) override {
    Gradients gradients;
    gradients.put("weights", over_rows(x_hat_, column_dots(dy, x_hat_.local())));  // (D)
    gradients.put("bias", over_rows(x_hat_, column_sums(dy)));                     // (D)
    Tensor d = scale_columns(std::move(dy), w_.local());                           // (B, D)
    const Tensor mean = rounded(scale(mean_of(row_sums(d)), -1));                  // (B)
    const Tensor dot = rounded(mean_of(row_dots(d, x_hat_.local())));              // (B)
    d = subtract(std::move(d), rounded(scale_rows(x_hat_.local().clone(), dot)));  // (B, D)
    d = add_to_columns(std::move(d), mean);
    gradients.put(Gradients::input_grad, as(x_hat_, rounded(scale_rows(std::move(d), r_))));
    return gradients;
  }

 private:
  Tensor mean_of(Tensor sum) const {
    return scale(std::move(sum), 1 / static_cast<float>(w_.local().size()));
  }

  Replicated w_, b_;  // (D)
  Rows x_hat_;        // (B, D)
  Tensor r_;          // (B)
};

/// LayerNorm with its features cut: two sums a row, in each direction, which travel together. The naive cut
/// takes mean and variance of its own features.
template <bool is_naive>
class LayerNormByFeatures : public Layer {
 public:
  using Layer::Layer;
  static constexpr SourceLine shown_at = SourceLine::current();
  void load_checkpoint(const Checkpoint& c) override {
    w_ = load_sharded<0>(c, "weights"), b_ = load_sharded<0>(c, "bias");
  }
  Placement input_layout() const override { return Placement::sharded(1); }

  Placed forward(Tensor input_columns) override {
    const Shape shape = {input_columns.extent(0), w_.global_shape()[0]};
    const Sharded<1> x(group(), std::move(input_columns), shape, w_.offset());              // (B, D/N)
    auto [mean, variance] = means_of(row_sums(x.local()), row_dots(x.local(), x.local()));  // (B), (B)
    variance = subtract(std::move(variance), multiply(mean.clone(), mean));
    r_ = rounded(inverse_root(std::move(variance), 1, norm_epsilon));                      // (B)
    Tensor centred = add_to_columns(x.local().clone(), rounded(scale(mean.clone(), -1)));  // (B, D/N)
    x_hat_ = as(x, rounded(scale_rows(std::move(centred), r_)));                           // (B, D/N)
    return as(x, add_to_rows(scale_columns(x_hat_.local().clone(), w_.local()), b_.local()));
  }
  Gradients backward(Tensor dy) override {
    Gradients gradients;
    gradients.put("weights", as(w_, column_dots(dy, x_hat_.local())));      // (D/N)
    gradients.put("bias", as(b_, column_sums(dy)));                         // (D/N)
    Tensor d = scale_columns(std::move(dy), w_.local());                    // (B, D/N)
    auto [mean, dot] = means_of(row_sums(d), row_dots(d, x_hat_.local()));  // (B), (B)
    d = subtract(std::move(d), rounded(scale_rows(x_hat_.local().clone(), rounded(std::move(dot)))));
    d = add_to_columns(std::move(d), rounded(scale(std::move(mean), -1)));  // (B, D/N)
    gradients.put(Gradients::input_grad, as(x_hat_, rounded(scale_rows(std::move(d), r_))));
    return gradients;
  }

 private:
  /// The means over all features, of two sums over mine: (B) each. One all-reduce takes both.
  std::pair<Tensor, Tensor> means_of(Tensor a, Tensor b) {
    const Index rows = a.size();
    const Tensor* const both[] = {&a, &b};
    Tensor sums = concatenate(both, 0);  // (2 B)
    Index features = w_.local().size();
    if constexpr (!is_naive) {
      sums = all_reduce(Partial(group(), std::move(sums))).local().clone();  // P → R
      features = w_.global_shape()[0];
    }
    sums = scale(std::move(sums), 1 / static_cast<float>(features));
    return {slice(sums, 0, 0, rows), slice(sums, 0, rows, 2 * rows)};
  }

  Sharded<0> w_, b_;  // (D/N)
  Sharded<1> x_hat_;  // (B, D/N)
  Tensor r_;          // (B)
};

}  // namespace shard::layer_cuts
