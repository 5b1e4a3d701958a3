#pragma once

/// A mixture of experts, which are feed-forwards: y = Σ over a token's experts of gate · expert(n). Each
/// expert computes the tokens that chose it.
///
/// The choice is as Mixtral's (Jiang et al. 2024): each token takes the k experts of its largest logits, and its
/// gates are the softmax of these logits. No expert is ever full.

#include <memory>

#include "engine/layers/arithmetic.hpp"
#include "engine/layers/feed_forward.hpp"
#include "engine/layers/layout_of_rows.hpp"

namespace shard {

/// The choices of T tokens, k each, sorted in several ways.
struct ChoiceLists {
  Index top_k = 0;        // k
  Indices experts = {};   // (T · k)   largest logit first; for equal logits, the lower expert
  Indices in_order = {};  // (T · k)   indices into `experts`, sorted by expert, and for one expert by token
  Indices tokens = {};    // (T · k)   the token of each choice in that order
  Indices slots = {};     // (T · k)   the position of each choice in that order
  std::vector<Index> counts = {};  // (E)       the number of choices of each expert
  std::vector<Index> first = {};   // (E)       where those of each expert begin in that order
};
/// Sorts the choices. Tensors without elements lead to the same choices in each block, which share one list.
std::shared_ptr<const ChoiceLists> sorted_choices(std::vector<Index> experts, Index top_k, Index num_experts);

/// The experts that a router chose for the tokens of some rows.
struct ExpertChoice {
  Tensor gates;  // (T, k)
  Index num_experts = 0;
  std::shared_ptr<const ChoiceLists> lists;

  Index top_k() const { return gates.extent(1); }
  Index rows() const { return gates.extent(0); }
  const Indices& experts() const { return lists->experts; }
  /// The choices of these rows.
  ExpertChoice of_rows(Range rows) const;
  /// The tokens that chose an expert, in ascending order.
  Indices tokens_of(Index expert) const {
    const auto e = static_cast<std::size_t>(expert);
    return lists->tokens.range(lists->first[e], lists->counts[e]);
  }
};

/// Is called with the number of choices of each expert, (E), before the host waits for the choice: if it
/// waits for what it makes of them, the host waits once.
using SeeCounts = std::function<void(Tensor counts)>;
/// Chooses experts by logits (T, E).
ExpertChoice choose_experts(Tensor logits, Index top_k, const Arithmetic& how,
                            const SeeCounts& see_counts = {});
/// dlogits (T, E) of dgates (T, k).
Tensor choose_experts_backward(Tensor dgates, const ExpertChoice& choice, const Arithmetic& how);

/// The same in a layout: a token's choice depends only on its own logits. dlogits have the layout of dgates.
/// @{
template <WholeRows L>
ExpertChoice choose_experts(L logits, Index top_k, const Arithmetic& how, const SeeCounts& see_counts = {},
                            SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  return choose_experts(detail::Access::take(std::move(logits)), top_k, how, see_counts);
}
template <WholeRows L>
L choose_experts_backward(L dgates, const ExpertChoice& choice, const Arithmetic& how,
                          SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  Tensor gates = detail::Access::take(std::move(dgates));
  return rows_like(choose_experts_backward(std::move(gates), choice, how), dgates);
}
/// @}

namespace detail {

/// Some of this device's rows of x.
template <Layout X>
X some_rows(const X& x, const Indices& rows) {
  Tensor some = gather_rows(Access::tensor(x), rows);
  Shape shape = some.shape();
  return Access::make<X>(x.group(), std::move(some), std::move(shape), Slice<X> ? 0 : Access::place(x));
}

}  // namespace detail

/// What the backward pass needs. Y is the layout of the result.
template <Layout X, Layout C, Layout Y>
struct MixtureKept {
  ExpertChoice choice;
  std::vector<X> n;                                  // by expert: its tokens, (t, D)
  std::vector<FeedForwardKept<ProductOf<X, C>>> of;  // by expert
  Tensor answers;                                    // (T · k, D)   by expert, then by token; in layout Y
};

/// The layout of a mixture's result.
template <Layout X, Layout C, Layout R>
using MixtureOf = ProductOf<ProductOf<X, C>, R>;

/// y (T, D) from n (T, D). Weights as in feed_forward; each device has all experts, or a slice of each.
template <Layout X, Layout C, Layout R>
MixtureOf<X, C, R> mixture_of_experts(const X& n, ExpertChoice choice,
                                      const std::vector<FeedForward<C, R>>& experts, const Arithmetic& how,
                                      MixtureKept<X, C, MixtureOf<X, C, R>>& kept,
                                      SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  std::vector<Tensor> answers;
  std::vector<const Tensor*> all;
  for (std::size_t e = 0; e < experts.size(); ++e) {
    kept.n.push_back(detail::some_rows(n, choice.tokens_of(static_cast<Index>(e))));  // (t, D)
    answers.push_back(
        detail::Access::take(feed_forward(kept.n[e], experts[e], how, kept.of.emplace_back())));  // (t, D)
  }
  for (const Tensor& t : answers) all.push_back(&t);
  kept.answers = concatenate(all, 0);  // (T · k, D)
  answers.clear();
  Tensor y = combine_rows(kept.answers, choice.lists->slots, choice.gates);  // (T, D)
  kept.choice = std::move(choice);
  return detail::Access::make<MixtureOf<X, C, R>>(n.group(), std::move(y), n.global_shape(),
                                                  detail::Access::place(n));
}

/// The gradients of the experts, of n through the experts, and of the gates. The gates' gradient has the
/// layout of y: if an expert's result is an addend, the gates' gradient is one, too.
template <Layout X, Layout C, Layout R>
struct MixtureGradients {
  std::vector<FeedForwardGradients<X, C, R>> experts;  // without n's gradient
  ProductOf<ProductOf<X, C>, Transposed<C>> n;         // (T, D)
  MixtureOf<X, C, R> gates;                            // (T, k)
};

template <Layout X, Layout C, Layout R>
MixtureGradients<X, C, R> mixture_of_experts_backward(const X& dy,
                                                      const std::vector<FeedForward<C, R>>& experts,
                                                      const Arithmetic& how,
                                                      MixtureKept<X, C, MixtureOf<X, C, R>>& kept,
                                                      SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  using detail::Access;
  const ExpertChoice& choice = kept.choice;
  MixtureGradients<X, C, R> d;
  const ChoiceLists& lists = *choice.lists;
  Tensor gates = dot_rows(Access::tensor(dy), kept.answers, lists.slots, choice.top_k());  // (T, k)
  kept.answers = Tensor();
  std::vector<Tensor> dn;
  std::vector<const Tensor*> all;
  for (std::size_t e = 0; e < experts.size(); ++e) {
    const Indices choices = lists.in_order.range(lists.first[e], lists.counts[e]);
    X answer = detail::some_rows(dy, choice.tokens_of(static_cast<Index>(e)));  // (t, D)
    answer = relaid(how.rounded(scale_rows(Access::take(std::move(answer)), choice.gates, choices)), answer);
    d.experts.push_back(feed_forward_backward(answer, kept.n[e], experts[e], how, std::move(kept.of[e])));
    dn.push_back(Access::take(std::move(d.experts.back().n)));
  }
  for (const Tensor& t : dn) all.push_back(&t);
  Tensor sum = combine_rows(concatenate(all, 0), lists.slots, choice.top_k());  // (T, D)
  d.n = Access::make<decltype(d.n)>(dy.group(), std::move(sum), dy.global_shape(), Access::place(dy));
  Shape shape = {dy.global_shape()[0], choice.top_k()};
  d.gates =
      Access::make<decltype(d.gates)>(dy.group(), std::move(gates), std::move(shape), Access::place(dy));
  return d;
}

}  // namespace shard
