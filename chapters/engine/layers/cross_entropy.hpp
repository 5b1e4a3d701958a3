#pragma once

/// Softmax with cross entropy: the loss of a token is log Σ_v base^z_v − z_label, and 0 without a label.

#include "engine/layers/arithmetic.hpp"
#include "engine/layers/layout_of_rows.hpp"
#include "engine/layers/tokens.hpp"

namespace shard {

/// What a device has of the softmax: of whole rows, or of its columns of the vocabulary.
struct TokenSoftmax {
  Tensor p;                   // (T, v)   the probabilities
  std::vector<Index> labels;  // (T)      as columns of p; no_slot where the label is in no column here
};

/// \name The steps of the loss, on this device's columns of the logits z (T, v)
/// Where the vocabulary is divided, `largest`, `sums` and `of_labels` are combined over the devices between
/// the steps: by their largest, and twice by their sum.
/// @{
/// Logits are made exponents first (Arithmetic). Their powers, in their memory; `largest` (T) is subtracted
/// from them before.
Tensor powers_of_logits(Tensor z, const Tensor& largest, const Arithmetic& how);
/// The logit of each label, (T, 1), or 0.
Tensor logits_of_labels(const Tensor& z, const std::vector<Index>& columns);
/// The losses, (T, 1). `tokens` are the rows here. Computed on the host in float64 and rounded once.
Tensor token_losses(const Tensor& largest, const Tensor& sums, const Tensor& of_labels, const Tokens& tokens,
                    const Arithmetic& how);
/// @}

/// Of whole rows: z (T, V), in whose memory p is computed, gives losses (T, 1).
Tensor cross_entropy(Tensor z, const Tokens& tokens, const Arithmetic& how, TokenSoftmax& kept);
/// dz = (p − 1 at the label) dloss, (T, v), in the memory of p. dloss is (T, 1); 0 in rows without a label.
Tensor cross_entropy_backward(const Tensor& dloss, const Tokens& tokens, const Arithmetic& how,
                              TokenSoftmax kept);

/// Tokens do not see one another.
template <WholeRows L>
L cross_entropy(L z, const Tokens& tokens, const Arithmetic& how, TokenSoftmax& kept,
                SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  Tensor logits = detail::Access::take(std::move(z));
  return detail::rows_like(cross_entropy(std::move(logits), tokens, how, kept), z);
}
/// `dloss` lies as the losses do, and dz too.
template <WholeRows L>
L cross_entropy_backward(const L& dloss, const Tokens& tokens, const Arithmetic& how, TokenSoftmax kept,
                         SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  return detail::rows_like(
      cross_entropy_backward(detail::Access::tensor(dloss), tokens, how, std::move(kept)), dloss);
}

}  // namespace shard
