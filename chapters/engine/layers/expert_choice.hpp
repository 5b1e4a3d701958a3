#pragma once

/// The choice of experts in a mixture as Mixtral's (Jiang et al. 2024): each token takes the k experts of its
/// largest logits, and its gates are the softmax of these logits. No expert is ever full.

#include "engine/layers/arithmetic.hpp"
#include "engine/layers/layout_of_rows.hpp"

namespace shard {

/// The experts that a router chose for the tokens of some rows.
struct ExpertChoice {
  Tensor gates;                // (T, k)
  std::vector<Index> experts;  // (T · k)   largest logit first; for equal logits, the lower expert
  Index num_experts = 0;

  Index top_k() const { return gates.extent(1); }
  Index rows() const { return gates.extent(0); }
  /// The choices of these rows.
  ExpertChoice of_rows(Range rows) const;
  /// The tokens that chose an expert, in ascending order.
  std::vector<Index> tokens_of(Index expert) const;
  /// All choices, as indices into `experts`, sorted by expert, and for one expert by token.
  std::vector<Index> in_order() const;
  /// The position of each choice (T · k) in that order.
  std::vector<Index> slots() const;
  /// The number of choices of each expert, (E).
  std::vector<Index> counts() const;
};

/// Chooses experts by logits (T, E).
ExpertChoice choose_experts(Tensor logits, Index top_k, const Arithmetic& how);
/// dlogits (T, E) of dgates (T, k).
Tensor choose_experts_backward(Tensor dgates, const ExpertChoice& choice, const Arithmetic& how);

/// The same in a layout: a token's choice depends only on its own logits. dlogits have the layout of dgates.
/// @{
template <WholeRows L>
ExpertChoice choose_experts(L logits, Index top_k, const Arithmetic& how,
                            SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  return choose_experts(detail::Access::take(std::move(logits)), top_k, how);
}
template <WholeRows L>
L choose_experts_backward(L dgates, const ExpertChoice& choice, const Arithmetic& how,
                          SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  Tensor gates = detail::Access::take(std::move(dgates));
  return detail::rows_like(choose_experts_backward(std::move(gates), choice, how), dgates);
}
/// @}

}  // namespace shard
