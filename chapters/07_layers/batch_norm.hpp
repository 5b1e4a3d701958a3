#pragma once

/// BatchNorm (Ioffe and Szegedy 2015), in training: y = x̂ w + b with x̂ = (x − μ) r, where μ and r come from
/// the rows of the batch, for each feature. It is LayerNorm turned around: features are free, and the batch
/// costs the sums over the rows.

#include "layer.hpp"

namespace shard::layer_cuts {

/// BatchNorm, whole or with its features cut: the parameters and the columns of x lie alike.
template <Layout Columns, Layout Vector>
class BatchNorm : public Layer {
 public:
  using Layer::Layer;
  static constexpr SourceLine shown_at = SourceLine::current();
  void load_checkpoint(const Checkpoint& c) override {
    std::vector<Vector> all = load_all<Vector>(c, {"weights", "bias"});
    w_ = std::move(all[0]), b_ = std::move(all[1]);
  }
  Placement input_layout() const override { return layout_of<Columns>(); }

  Placed forward(Tensor columns) override {
    const Columns x = input<Columns>(std::move(columns));  // (B, D/N)
    rows_ = x.global_shape()[0];
    const Tensor mean = mean_of(column_sums(x.local()));                                // (D/N)
    Tensor variance = mean_of(column_dots(x.local(), x.local()));                       // (D/N)  of x²
    variance = subtract(std::move(variance), multiply(mean.clone(), mean));             // (D/N)
    r_ = rounded(inverse_root(std::move(variance), 1, norm_epsilon));                   // (D/N)
    Tensor centred = add_to_rows(x.local().clone(), rounded(scale(mean.clone(), -1)));  // (B, D/N)
    x_hat_ = as(x, rounded(scale_columns(std::move(centred), r_)));                     // (B, D/N)
    return as(x, add_to_rows(scale_columns(x_hat_.local().clone(), w_.local()), b_.local()));
  }
  /// dx = r w (dy − mean of dy − x̂ · mean of dy x̂): the means over the rows are db and dw, over B.
  Gradients backward(Tensor dy) override {
    const Tensor dw = column_dots(dy, x_hat_.local()), db = column_sums(dy);  // (D/N)
    const Tensor dot = rounded(mean_of(dw.clone())), mean = rounded(scale(mean_of(db.clone()), -1));
    Tensor d = subtract(std::move(dy), rounded(scale_columns(x_hat_.local().clone(), dot)));  // (B, D/N)
    d = scale_columns(scale_columns(add_to_rows(std::move(d), mean), w_.local()), r_);        // (B, D/N)
    Gradients gradients;
    gradients.put("weights", as(w_, dw.clone()));
    gradients.put("bias", as(b_, db.clone()));
    gradients.put(Gradients::input_grad, as(x_hat_, rounded(std::move(d))));
    return gradients;
  }

 private:
  Tensor mean_of(Tensor sum) const { return scale(std::move(sum), 1 / static_cast<float>(rows_)); }

  Vector w_, b_;    // (D/N)
  Columns x_hat_;   // (B, D/N)
  Tensor r_;        // (D/N)
  Index rows_ = 0;  // B
};

/// BatchNorm with its batch cut, called "synchronised": the sums over the rows are addends. The sums of the
/// way back are the gradients of b and w, which data parallel training sums anyway. The naive cut is what data
/// parallel programs do by default: each device normalises with its own rows.
template <bool is_naive>
class BatchNormByRows : public Layer {
 public:
  using Layer::Layer;
  static constexpr SourceLine shown_at = SourceLine::current();
  void load_checkpoint(const Checkpoint& c) override {
    w_ = load_replicated(c, "weights"), b_ = load_replicated(c, "bias");
  }
  Placement input_layout() const override { return Placement::sharded(0); }

  Placed forward(Tensor input) override {
    const Sharded<0> x = my_rows(std::move(input));  // (B/N, D)
    rows_ = is_naive ? x.local().extent(0) : x.global_shape()[0];
    auto [sum, squares] = over_batch(column_sums(x.local()), column_dots(x.local(), x.local()));  // (D)
    const Tensor mean = mean_of(std::move(sum));
    Tensor variance = subtract(mean_of(std::move(squares)), multiply(mean.clone(), mean));
    r_ = rounded(inverse_root(std::move(variance), 1, norm_epsilon));                   // (D)
    Tensor centred = add_to_rows(x.local().clone(), rounded(scale(mean.clone(), -1)));  // (B/N, D)
    x_hat_ = as(x, rounded(scale_columns(std::move(centred), r_)));                     // (B/N, D)
    return as(x, add_to_rows(scale_columns(x_hat_.local().clone(), w_.local()), b_.local()));
  }
  Gradients backward(Tensor dy) override {
    auto [dw, db] = over_batch(column_dots(dy, x_hat_.local()), column_sums(dy));  // (D)
    const Tensor dot = rounded(mean_of(dw.clone())), mean = rounded(scale(mean_of(db.clone()), -1));
    Tensor d = subtract(std::move(dy), rounded(scale_columns(x_hat_.local().clone(), dot)));  // (B/N, D)
    d = scale_columns(scale_columns(add_to_rows(std::move(d), mean), w_.local()), r_);
    Gradients gradients;
    gradients.put("weights", Replicated(group(), std::move(dw)));
    gradients.put("bias", Replicated(group(), std::move(db)));
    gradients.put(Gradients::input_grad, as(x_hat_, rounded(std::move(d))));
    return gradients;
  }

 private:
  /// The sums over the batch, of two sums over my rows: (D) each. One all-reduce takes both.
  std::pair<Tensor, Tensor> over_batch(Tensor a, Tensor b) {
    if constexpr (is_naive) return {std::move(a), std::move(b)};
    const Index features = a.size();
    const Tensor* const both[] = {&a, &b};
    const Replicated sums = all_reduce(Partial(group(), concatenate(both, 0)));  // (2 D)   P → R
    return {slice(sums.local(), 0, 0, features), slice(sums.local(), 0, features, 2 * features)};
  }
  Tensor mean_of(Tensor sum) const {
    return scale(std::move(sum), 1 / static_cast<float>(std::max<Index>(rows_, 1)));
  }

  Replicated w_, b_;  // (D)
  Sharded<0> x_hat_;  // (B/N, D)
  Tensor r_;          // (D)
  Index rows_ = 0;    // B
};

}  // namespace shard::layer_cuts
