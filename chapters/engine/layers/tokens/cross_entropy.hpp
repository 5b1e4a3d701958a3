#pragma once

/// Softmax with cross entropy: the loss of a token is log Σ_v base^z_v − z_label, and 0 without a label.

#include "engine/layers/arithmetic.hpp"
#include "engine/layers/layout_of_rows.hpp"
#include "engine/layers/tokens/tokens.hpp"

namespace shard {

/// The softmax of this device's columns of the vocabulary, or of whole rows.
struct TokenSoftmax {
  Tensor p;        // (T, v)   the probabilities
  Indices labels;  // (T)      columns of p; no_slot for a label in no column of this device
};

/// \name The steps of the loss, on this device's columns of the logits z (T, v)
/// Where the vocabulary is divided, the devices combine `largest` by a maximum, and `sums` and `of_labels` by
/// a sum, between the steps.
/// @{
/// Makes logits exponents (Arithmetic), subtracts `largest` (T), and returns the powers, in the memory of z.
Tensor powers_of_logits(Tensor z, const Tensor& largest, const Arithmetic& how);
/// The logit of each label, (T, 1); 0 for a label in no column of this device.
Tensor logits_of_labels(const Tensor& z, const Indices& columns);
/// The losses, (T, 1), of the rows `tokens`: 0 without a label.
Tensor token_losses(const Tensor& largest, const Tensor& sums, const Tensor& of_labels, const Tokens& tokens,
                    const Arithmetic& how);
/// @}

/// The losses (T, 1) of whole rows z (T, V). p is computed in the memory of z.
Tensor cross_entropy(Tensor z, const Tokens& tokens, const Arithmetic& how, TokenSoftmax& kept);
/// dz = (p − 1 at the label) dloss, (T, v), in the memory of p. dloss is (T, 1); 0 in rows without a label.
Tensor cross_entropy_backward(const Tensor& dloss, const Tokens& tokens, const Arithmetic& how,
                              TokenSoftmax kept);

/// The loss in a layout: tokens are independent.
template <WholeRows L>
L cross_entropy(L z, const Tokens& tokens, const Arithmetic& how, TokenSoftmax& kept,
                SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  Tensor logits = detail::Access::take(std::move(z));
  return rows_like(cross_entropy(std::move(logits), tokens, how, kept), z);
}
/// dz in the layout of `dloss`, which is that of the losses.
template <WholeRows L>
L cross_entropy_backward(const L& dloss, const Tokens& tokens, const Arithmetic& how, TokenSoftmax kept,
                         SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  return rows_like(cross_entropy_backward(detail::Access::tensor(dloss), tokens, how, std::move(kept)),
                   dloss);
}

}  // namespace shard
