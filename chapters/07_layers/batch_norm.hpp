#pragma once

/// BatchNorm (Ioffe and Szegedy 2015), in training: y = x̂ w + b with x̂ = (x − μ) r, where μ and r come from
/// the rows of the batch, for each feature. It is LayerNorm turned around: features are free, and the batch
/// costs the sums over the rows.

#include "engine/device/layer_operations.hpp"
#include "layer.hpp"

namespace shard::layer_cuts {

/// BatchNorm whole (L and Vector are Replicated), with its features cut (Sharded<1> and Sharded<0>), or with
/// its batch cut (Sharded<0> and Replicated). Where the batch is cut, sums over the rows are addends: this is
/// called "synchronised". The sums of the backward pass are the gradients of b and w, which data parallel
/// training sums anyway. The naive cut of the batch is what data parallel programs do by default: each device
/// normalises with its own rows.
template <Layout L, Layout Vector, bool is_naive = false>
class BatchNorm : public Layer {
 public:
  using Layer::Layer;
  static constexpr SourceLine shown_at = SourceLine::current();
  void load_checkpoint(const Checkpoint& c) override {
    std::vector<Vector> all = load_all<Vector>(c, {"weights", "bias"});
    w_ = std::move(all[0]), b_ = std::move(all[1]);
  }
  Placement input_layout() const override { return layout_of<L>(); }

  Placed forward(Tensor mine) override {
    const L x = input<L>(std::move(mine));  // (B, D), or my rows or columns
    rows_ = is_naive ? x.local().extent(0) : x.global_shape()[0];
    auto [sum, squares] = over_batch(column_sums(x.local()), column_dots(x.local(), x.local()));  // (D)
    const Tensor mean = mean_of(std::move(sum));
    Tensor variance = subtract(mean_of(std::move(squares)), multiply(mean.clone(), mean));
    r_ = rounded(inverse_root(std::move(variance), 1, norm_epsilon));                   // (D)
    Tensor centred = add_to_rows(x.local().clone(), rounded(scale(mean.clone(), -1)));  // like x
    x_hat_ = as(x, rounded(scale_columns(std::move(centred), r_)));                     // like x
    return as(x, add_to_rows(scale_columns(x_hat_.local().clone(), w_.local()), b_.local()));
  }
  /// dx = r w (dy − mean of dy − x̂ · mean of dy x̂): the means over the rows are db and dw, over B.
  Gradients backward(Tensor dy) override {
    auto [dw, db] = over_batch(column_dots(dy, x_hat_.local()), column_sums(dy));  // (D)
    const Tensor dot = rounded(mean_of(dw.clone())), mean = rounded(scale(mean_of(db.clone()), -1));
    Tensor d = subtract(std::move(dy), rounded(scale_columns(x_hat_.local().clone(), dot)));  // like x
    d = scale_columns(scale_columns(add_to_rows(std::move(d), mean), w_.local()), r_);        // like x
    Gradients gradients;
    gradients.put("weights", as(w_, std::move(dw)));
    gradients.put("bias", as(b_, std::move(db)));
    gradients.put(Gradients::input_grad, as(x_hat_, rounded(std::move(d))));
    return gradients;
  }

 private:
  /// The sums over the batch, of two sums over my rows: (D) each. One all-reduce takes both.
  std::pair<Tensor, Tensor> over_batch(Tensor a, Tensor b) {
    if constexpr (is_naive || !std::same_as<L, Sharded<0>>) return {std::move(a), std::move(b)};
    const Index features = a.size();
    const Tensor* const both[] = {&a, &b};
    const Replicated sums = all_reduce(Partial(group(), concatenate(both, 0)));  // (2 D)   P → R
    return {slice(sums.local(), 0, 0, features), slice(sums.local(), 0, features, 2 * features)};
  }
  Tensor mean_of(Tensor sum) const {
    return scale(std::move(sum), 1 / static_cast<float>(std::max<Index>(rows_, 1)));
  }

  Vector w_, b_;    // (D), or my features
  L x_hat_;         // like x
  Tensor r_;        // like w
  Index rows_ = 0;  // B; naive: of mine
};

}  // namespace shard::layer_cuts
