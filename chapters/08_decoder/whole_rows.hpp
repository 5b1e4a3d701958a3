#pragma once

/// A block on rows that are whole on a device: on its own sequences, with weights that every device has
/// (Sharded<0> and Replicated), or on all sequences, with weights that it owns (Owned). Sequences need nothing
/// of one another, so nothing is sent here. single.hpp spells out the same steps.

#include "blocks.hpp"

namespace shard::decoders {

/// For rows that lie as L: a block's weights, their gradients, and what the block keeps.
/// @{
template <WholeRows L>
using WeightsFor = Block<WeightFor<L>, WeightFor<L>, WeightFor<L>, WeightFor<L>>;
template <WholeRows L>
using GradientsFor = Block<SumOverRows<L>, SumOverRows<L>, SumOverRows<L>, SumOverRows<L>>;
template <WholeRows L>
using KeptFor = BlockKept<L, WeightFor<L>, L, L>;
/// @}

/// The tokens of this device's sequences, of an input (B, 2 S).
inline Tokens tokens_of(const Sharded<0>& input, const DecoderModel& m) {
  Tokens tokens = Tokens::read(input.local(), m.vocabulary);
  tokens.first_sequence = input.offset();
  return tokens;
}
/// Their activations, (T, D), of (B S, D).
inline Sharded<0> embedding_of(const Replicated& table, const Sharded<0>& input, const Tokens& mine) {
  return embedding(table, mine.ids, mine.first_sequence * mine.length, input.global_shape()[0] * mine.length);
}

/// Attention of block b, with rotary positions.
template <WholeRows L, class AnyBlock>
L attend(const DecoderModel& m, const AnyBlock& w, const L& x, const Tokens& t, KeptFor<L>& k,
         KeyValueCache& cache, Index b) {
  k.n = rms_norm(x, w.attention_norm, m.epsilon, m.how, k.attention_norm);     // (T, D)
  k.q = rotary(matmul(k.n, w.query), t.sequences, t.positions, rotary_of(m));  // (T, H d)
  k.k = rotary(matmul(k.n, w.key), t.sequences, t.positions, rotary_of(m));    // (T, G d)
  k.v = matmul(k.n, w.value);                                                  // (T, G d)
  const auto [keys, values, at] = cache.seen(b, k.k, k.v, t.positions);
  k.o = attention(k.q, keys, values, t.positions, at, all_heads(m, t.sequences), k.softmax);  // (T, H d)
  return matmul(k.o, w.output);                                                               // (T, D)
}
template <WholeRows L, class AnyBlock, class AnyGradients>
L attend_backward(const DecoderModel& m, const AnyBlock& w, const L& d, const Tokens& t, const KeptFor<L>& k,
                  AnyGradients& g) {
  g.output = matmul(transposed(k.o), d);  // (H d, D)
  auto [dq, dk, dv] = attention_backward(matmul(d, transposed(w.output)), k.o, k.q, k.k, k.v, t.positions,
                                         all_heads(m, t.sequences), k.softmax);
  dq = rotary_backward(std::move(dq), t.sequences, t.positions, rotary_of(m));  // (T, H d)
  dk = rotary_backward(std::move(dk), t.sequences, t.positions, rotary_of(m));  // (T, G d)
  g.query = matmul(transposed(k.n), dq);                                        // (D, H d)
  g.key = matmul(transposed(k.n), dk);                                          // (D, G d)
  g.value = matmul(transposed(k.n), dv);                                        // (D, G d)
  L dn = matmul(dq, transposed(w.query));                                       // (T, D)
  accumulate(dn, matmul(dk, transposed(w.key)));
  accumulate(dn, matmul(dv, transposed(w.value)));
  return rms_norm_backward(std::move(dn), w.attention_norm, m.how, k.attention_norm, g.attention_norm);
}

/// The feed-forward, or the experts that the router chooses.
template <WholeRows L>
L feed_forward_block(const DecoderModel& m, const WeightsFor<L>& w, const L& x, KeptFor<L>& k) {
  k.f = rms_norm(x, w.feed_forward_norm, m.epsilon, m.how, k.feed_forward_norm);       // (T, D)
  if (!m.is_mixture()) return feed_forward(k.f, w.experts[0], m.how, k.feed_forward);  // (T, D)
  ExpertChoice choice = choose_experts(matmul(k.f, w.router), m.top_k, m.how);         // of (T, E)
  return mixture_of_experts(k.f, std::move(choice), w.experts, m.how, k.mixture);      // (T, D)
}
template <WholeRows L>
L feed_forward_block_backward(const DecoderModel& m, const WeightsFor<L>& w, const L& d, KeptFor<L>& k,
                              GradientsFor<L>& g) {
  L dn;
  auto put = [&](auto& of_expert) {
    g.experts.push_back({std::move(of_expert.gate), std::move(of_expert.up), std::move(of_expert.down)});
  };
  if (m.is_mixture()) {
    auto dy = mixture_of_experts_backward(d, w.experts, m.how, k.mixture);
    for (auto& of_expert : dy.experts) put(of_expert);
    const L dlogits = choose_experts_backward(std::move(dy.gates), k.mixture.choice, m.how);  // (T, E)
    g.router = matmul(transposed(k.f), dlogits);                                              // (D, E)
    dn = std::move(dy.n) + matmul(dlogits, transposed(w.router));                             // (T, D)
  } else {
    auto dy = feed_forward_backward(d, k.f, w.experts[0], m.how, std::move(k.feed_forward));
    dn = std::move(dy.n);
    put(dy);
  }
  return rms_norm_backward(std::move(dn), w.feed_forward_norm, m.how, k.feed_forward_norm,
                           g.feed_forward_norm);
}

}  // namespace shard::decoders
