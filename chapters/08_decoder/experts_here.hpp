#pragma once

/// A mixture whose experts are on several devices: tokens go to their experts, this device's experts work on
/// the tokens that came to them, and the answers go back.

#include <span>

#include "decoder_block.hpp"
#include "routes.hpp"

namespace shard::decoders {

using OwnedExpert = FeedForward<Owned, Owned>;
using OwnedExpertGradients = FeedForwardGradients<Owned, Owned, Owned>;

/// What this device's experts keep for their backward pass. X is the layout of an expert's t tokens, C that
/// of its weights `gate` and `up`.
template <Layout X, Layout C>
struct ExpertsKept {
  std::vector<X> n;                                  // (t, D)
  std::vector<FeedForwardKept<ProductOf<X, C>>> of;  // (t, F)
};

/// Row i of the result (m, D) is the answer to row i of the tokens n (m, D), or its addend where the experts'
/// hidden units are divided. `lay` says how an expert's tokens lie.
template <Layout X, Layout C, Layout R, class Lay>
Tensor answers(const Lay& lay, Tensor n, const Route& route, std::span<const FeedForward<C, R>> mine,
               const Arithmetic& how, ExpertsKept<X, C>& kept) {
  Tensor y = Tensor::uninitialized(n.shape());
  for (std::size_t i = 0; i < mine.size(); ++i) {
    kept.n.push_back(lay(gather_rows(n, route.rows[i])));                               // (t, D)
    const auto answer = feed_forward(kept.n[i], mine[i], how, kept.of.emplace_back());  // (t, D)
    scatter_rows(held(answer), route.rows[i], y);
  }
  return y;
}
/// The gradient of n (m, D), or its addend; and each expert's gradients, without that of n.
template <Layout X, Layout C, Layout R, class Lay>
std::pair<Tensor, std::vector<FeedForwardGradients<X, C, R>>> answers_backward(
    const Lay& lay, Tensor dy, const Route& route, std::span<const FeedForward<C, R>> mine,
    const Arithmetic& how, ExpertsKept<X, C>& kept) {
  Tensor dn = Tensor::uninitialized(dy.shape());
  std::vector<FeedForwardGradients<X, C, R>> dw;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const X d = lay(gather_rows(dy, route.rows[i]));  // (t, D)
    dw.push_back(feed_forward_backward(d, kept.n[i], mine[i], how, std::move(kept.of[i])));
    kept.n[i] = X();
    scatter_rows(held(std::exchange(dw.back().n, {})), route.rows[i], dn);
  }
  return {std::move(dn), std::move(dw)};
}

/// Kept by a block whose experts are on several devices. X: the layout of the tokens that came to an expert.
template <class BlockKept, Layout X, Layout C>
struct AskedKept : BlockKept {
  ExpertChoice choice;  // of my tokens
  Route route;
  ExpertsKept<X, C> experts;  // mine, of the tokens that came
  Tensor answers;             // (T · k, D)   to my tokens, by expert, then by token
};

/// ## Experts on several devices
/// The router's choice, tokens to their experts, and answers back. Beside what a division says
/// (decoder_block.hpp), it says here
///     owners()          the devices that have all experts once
///     my_experts(w)     those of this device
///     for_expert(rows)  tokens that came to one of them, as they lie
///     like(rows, f)     rows of this device's tokens, of another width: where experts are divided, addends
template <IsDivision Division, class W, class X, class AnyKept>
auto ask_experts(Division& division, const W& w, const X& x, AnyKept& k) {
  const DecoderModel& m = division.m;
  Communicator& owners = division.owners();
  auto for_expert = [&](Tensor rows) { return division.for_expert(std::move(rows)); };
  k.f = rms_norm(x, w.feed_forward_norm, m.epsilon, m.how, k.feed_forward_norm);  // (T, D)
  std::vector<Index> coming;                                                      // (N, E/N)
  auto tell = [&](Tensor leaving) { coming = arriving(owners, std::move(leaving)); };
  k.choice = choose_experts(matmul(k.f, w.router), m.top_k, m.how, tell);  // of (T, E)
  k.route = route_of(k.choice.lists->counts, coming, owners.num_devices(), owners.device_id());
  Tensor n = gather_rows(k.f.local(), k.choice.lists->tokens);  // (T · k, D)   by expert, so by device
  n = sent(owners, std::move(n), k.route.to, k.route.from);     // (m, D)       tokens for my experts
  Tensor y = answers(for_expert, std::move(n), k.route, division.my_experts(w), m.how, k.experts);  // (m, D)
  k.answers = sent(owners, std::move(y), k.route.from, k.route.to);  // (T · k, D)   back, as they left
  return division.like(combine_rows(k.answers, k.choice.lists->slots, k.choice.gates), k.f);  // (T, D)
}
/// Gradients of answers go to the experts, and gradients of tokens come back. put_experts takes the gradients
/// of this device's experts.
template <IsDivision Division, class W, class X, class AnyKept, class PutExperts, class Put>
auto ask_experts_backward(Division& division, const W& w, const X& d, AnyKept& k,
                          const PutExperts& put_experts, const Put& put) {
  const DecoderModel& m = division.m;
  Communicator& owners = division.owners();
  auto for_expert = [&](Tensor rows) { return division.for_expert(std::move(rows)); };
  const Indices slots = k.choice.lists->slots;
  auto dgates = division.like(dot_rows(d.local(), k.answers, slots, m.top_k), d);  // (T, k)
  k.answers = Tensor();
  Tensor dy = gather_rows(d.local(), k.choice.lists->tokens);  // (T · k, D)
  dy = m.how.rounded(scale_rows(std::move(dy), k.choice.gates, k.choice.lists->in_order));
  dy = sent(owners, std::move(dy), k.route.to, k.route.from);  // (m, D)   of my experts' answers
  auto [dn, dw] = answers_backward(for_expert, std::move(dy), k.route, division.my_experts(w), m.how,
                                   k.experts);  // (m, D)
  put_experts(std::move(dw));
  dn = sent(owners, std::move(dn), k.route.from, k.route.to);                    // (T · k, D)   of my tokens
  auto df = division.sum(division.like(combine_rows(dn, slots, m.top_k), k.f));  // (T, D)
  dn = Tensor();
  const auto dlogits = choose_experts_backward(division.sum(std::move(dgates)), k.choice, m.how);  // (T, E)
  put(of_block::router, matmul(transposed(k.f), dlogits));                                         // (D, E)
  df = std::move(df) + matmul(dlogits, transposed(w.router));
  return norm_backward(of_block::feed_forward_norm, std::move(df), w.feed_forward_norm, m.how,
                       k.feed_forward_norm, put);
}

/// Puts the gradients of a block's experts: of this device's, and, by shape and owner, of those of others.
inline void put_experts(const DecoderModel& m, Index b, const std::vector<OwnedExpert>& all,
                        std::vector<OwnedExpertGradients> mine, Gradients& gradients) {
  auto of_other = [](const Owned& p) { return Owned(p.group(), Tensor(), p.global_shape(), p.owner()); };
  auto next = mine.begin();
  auto put = [&](const auto& part, Owned dw) { gradients.put(part.name(m, b), std::move(dw)); };
  for (std::size_t e = 0; e < all.size(); ++e) {
    const OwnedExpert& w = all[e];
    if (w.gate.is_mine())
      put_expert(e, std::move(*next++), put);
    else
      put_expert(e, OwnedExpert{of_other(w.gate), of_other(w.up), of_other(w.down)}, put);
  }
}

}  // namespace shard::decoders
