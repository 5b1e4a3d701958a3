#include "engine/layers/tokens/cross_entropy.hpp"

#include <cmath>

namespace shard {

Tensor powers_of_logits(Tensor z, const Tensor& largest, const Arithmetic& how) {
  return exponentials(std::move(z), largest, how.base);
}

Tensor logits_of_labels(const Tensor& z, const std::vector<Index>& columns) {
  return take_columns(z, columns, 1);
}

Tensor token_losses(const Tensor& largest, const Tensor& sums, const Tensor& of_labels, const Tokens& tokens,
                    const Arithmetic& how) {
  const std::vector<float> m = largest.to_host(), s = sums.to_host(), z = of_labels.to_host();
  std::vector<float> losses(m.size());
  for (std::size_t i = 0; i < m.size(); ++i) {
    if (tokens.labels[i] == Tokens::no_label) continue;
    const double log = how.base == ExponentialBase::two ? std::log2(double{s[i]}) : std::log(double{s[i]});
    losses[i] = static_cast<float>(double{m[i]} + log - double{z[i]});
  }
  return how.rounded(Tensor::from_host({static_cast<Index>(losses.size()), 1}, losses));
}

Tensor cross_entropy(Tensor z, const Tokens& tokens, const Arithmetic& how, TokenSoftmax& kept) {
  z = how.exponents(std::move(z));
  kept.labels = in_slice(tokens.labels, {0, z.extent(1)});
  const Tensor of_labels = logits_of_labels(z, kept.labels);  // (T, 1)
  const Tensor largest = row_max(z);                          // (T)
  kept.p = powers_of_logits(std::move(z), largest, how);      // (T, V)
  const Tensor sums = row_sums(kept.p);                       // (T)
  kept.p = divide_rows(std::move(kept.p), sums);
  return token_losses(largest, sums, of_labels, tokens, how);
}

Tensor cross_entropy_backward(const Tensor& dloss, const Tokens& tokens, const Arithmetic& how,
                              TokenSoftmax kept) {
  const Index rows = dloss.extent(0);
  std::vector<float> d = dloss.to_host();
  for (std::size_t i = 0; i < d.size(); ++i)
    if (tokens.labels[i] == Tokens::no_label) d[i] = 0;
  const Tensor ones = Tensor::from_host({rows, 1}, std::vector<float>(d.size(), 1));
  Tensor dz = subtract_at_columns(std::move(kept.p), kept.labels, ones);
  dz = scale_rows(std::move(dz), Tensor::from_host({rows}, d));
  return scale(how.rounded(std::move(dz)), how.logit_scale);
}

}  // namespace shard
