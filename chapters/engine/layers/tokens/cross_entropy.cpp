#include "engine/layers/tokens/cross_entropy.hpp"

#include <array>

namespace shard {

namespace {

/// Each row, or no_slot for one without a label: it has no loss, and its gradient is 0.
std::vector<Index> rows_with_labels(const Tokens& tokens) {
  std::vector<Index> rows = positions_from(0, tokens.labels.size());
  for (Index& row : rows) row = tokens.labels[row] == no_slot ? no_slot : row;
  return rows;
}

}  // namespace

Tensor powers_of_logits(Tensor z, const Tensor& largest, const Arithmetic& how) {
  return exponentials(std::move(z), largest, how.base);
}

Tensor logits_of_labels(const Tensor& z, const Indices& columns) {
  return take_columns(z, columns, 1);
}

Tensor token_losses(const Tensor& largest, const Tensor& sums, const Tensor& of_labels, const Tokens& tokens,
                    const Arithmetic& how) {
  return how.rounded(losses_of_labels(largest, sums, of_labels, rows_with_labels(tokens), how.base));
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
  const Tensor d = combine_rows(dloss, rows_with_labels(tokens), 1).reshaped({rows});
  const Tensor ones = add_to_rows(Tensor({rows, 1}), std::array{1.0F});
  Tensor dz = scale_rows(subtract_at_columns(std::move(kept.p), kept.labels, ones), d);
  return scale(how.rounded(std::move(dz)), how.logit_scale);
}

}  // namespace shard
