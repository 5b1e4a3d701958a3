#include "engine/layers/rms_norm.hpp"

namespace shard {

MeanOfRows mean_over(Index features) {
  return [features](Tensor sum) { return scale(std::move(sum), 1 / static_cast<float>(features)); };
}

Tensor rms_norm(const Tensor& x, const Tensor& w, float epsilon, const Arithmetic& how, Normed& kept,
                const MeanOfRows& mean) {
  kept.r = inverse_root(mean(row_dots(x, x)), 1, epsilon);  // (T)
  kept.x_hat = how.rounded(scale_rows(x.clone(), kept.r));  // (T, D)
  return scale_columns(kept.x_hat.clone(), w);              // (T, D)
}

Tensor rms_norm_backward(Tensor dy, const Tensor& w, const Arithmetic& how, const Normed& kept, Tensor& dw,
                         const MeanOfRows& mean) {
  dw = column_dots(dy, kept.x_hat);                               // (D)
  Tensor d = scale_columns(std::move(dy), w);                     // (T, D)   dx̂
  const Tensor c = mean(row_dots(d, kept.x_hat));                 // (T)
  d = subtract(std::move(d), scale_rows(kept.x_hat.clone(), c));  // (T, D)
  return how.rounded(scale_rows(std::move(d), kept.r));           // (T, D)
}

}  // namespace shard
