#pragma once

/// RMSNorm (Zhang and Sennrich 2019): y = x̂ w, where x̂ = x r and r = 1/√(mean of x² + ε), one number a row.

#include <functional>

#include "engine/layers/arithmetic.hpp"
#include "engine/layers/layout_of_rows.hpp"

namespace shard {

/// What the backward pass needs.
struct Normed {
  Tensor x_hat;  // (T, D)
  Tensor r;      // (T)
};

/// The mean over all features of each row, (T), from the sum over this device's features.
using MeanOfRows = std::function<Tensor(Tensor sum)>;

/// y (T, D) from x (T, D) and w (D): all features, or this device's.
Tensor rms_norm(const Tensor& x, const Tensor& w, float epsilon, const Arithmetic& how, Normed& kept,
                const MeanOfRows& mean);
/// dx = r (dx̂ − x̂ · mean of dx̂ x̂) with dx̂ = dy w, in the memory of dy. dw = Σ over rows of dy x̂, (D).
Tensor rms_norm_backward(Tensor dy, const Tensor& w, const Arithmetic& how, const Normed& kept, Tensor& dw,
                         const MeanOfRows& mean);
/// The mean over a number of features that a device has all of.
MeanOfRows mean_over(Index features);

/// The norm in a layout. Each row is normalised by itself, so y has the layout of x.
template <WholeRows L>
L rms_norm(const L& x, const WeightFor<L>& w, float epsilon, const Arithmetic& how, Normed& kept,
           SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  const Tensor& weights = detail::Access::tensor(w);
  return relaid(rms_norm(detail::Access::tensor(x), weights, epsilon, how, kept, mean_over(weights.size())),
                x);
}
/// dw is a sum over rows: an addend (Partial) where rows are divided.
template <WholeRows L>
L rms_norm_backward(L dy, const WeightFor<L>& w, const Arithmetic& how, const Normed& kept,
                    SumOverRows<L>& dw, SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  const Tensor& weights = detail::Access::tensor(w);
  Tensor sum, dx = rms_norm_backward(detail::Access::take(std::move(dy)), weights, how, kept, sum,
                                     mean_over(weights.size()));
  dw = sum_over(std::move(sum), dy);
  return relaid(std::move(dx), dy);
}

}  // namespace shard
