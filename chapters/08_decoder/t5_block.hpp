#pragma once

/// A block of an encoder-decoder, forward and backward: its attentions, and its feed-forward. The layouts of
/// its weights say what is divided (t5_blocks.hpp). `division` has the sizes, m, and a function sum: what the
/// addends of all devices make, where heads and hidden units are divided. put(word, gradient) takes the
/// gradients of weights.

#include "t5_blocks.hpp"

namespace shard::decoders {

/// Which keys an attention's queries see. In the decoder, those of earlier passes are kept, by a number of
/// the attention's.
struct Sight {
  std::span<const Index> at_q, at_k;
  AttentionHeads heads;
  std::optional<Index> kept_as = std::nullopt;
};
/// In block b, a stack's own tokens: in the decoder, those before a query and itself. The bias says which
/// heads are here.
inline Sight own_tokens(const T5Model& m, Side side, Index b, const Tokens& tokens, const Tensor& bias) {
  const Index heads = bias.extent(1);
  AttentionHeads all{tokens.sequences, m.head_dim, key_heads_of({0, heads}, 1, 0), heads,
                     std::nullopt,     m.how};
  all.is_causal = side == Side::decoder;
  all.bias = &bias;
  Sight sight{tokens.positions, tokens.positions, std::move(all)};
  if (side == Side::decoder) sight.kept_as = 2 * b;
  return sight;
}
/// All tokens of the source, for `heads` heads of the target.
inline Sight source_tokens(const T5Model& m, Index b, const Tokens& target, const Tokens& source,
                           Index heads) {
  AttentionHeads all{target.sequences, m.head_dim, key_heads_of({0, heads}, 1, 0), heads,
                     std::nullopt,     m.how};
  all.is_causal = false;
  return {target.positions, source.positions, std::move(all), 2 * b + 1};
}

/// ## An attention
/// Keys and values are made of `source`, (T_e, D), or of what queries are made of.
template <Layout X, Layout C, Layout R>
ProductOf<C, R> attend(const T5Model& m, const T5Attention<X, C, R>& w, const X& x, const Sight& sight,
                       T5AttentionKept<X, C>& k, const std::type_identity_t<X>* source,
                       KeyValueCache& cache) {
  k.n = rms_norm(x, w.norm, m.epsilon, m.how, k.norm);  // (T, D)
  const X& of_keys = source != nullptr ? *source : k.n;
  k.q = matmul(k.n, w.query);      // (T, H d)
  k.k = matmul(of_keys, w.key);    // (T, H d)   or (T_e, H d)
  k.v = matmul(of_keys, w.value);  // (T, H d)   or (T_e, H d)
  const auto [keys, values, at] = cache.seen(sight.kept_as, k.k, k.v, sight.at_k);
  k.o = attention(k.q, keys, values, sight.at_q, at, sight.heads, k.softmax);  // (T, H d)
  return matmul(k.o, w.output);                                                // (T, D)
}

/// ## The feed-forward
template <Layout X, Layout C, Layout R>
ProductOf<C, R> feed_forward_block(const T5Model& m, const T5Block<X, C, R>& w, const X& x,
                                   T5BlockKept<X, C>& k) {
  k.f = rms_norm(x, w.feed_forward_norm, m.epsilon, m.how, k.feed_forward_norm);  // (T, D)
  return feed_forward(k.f, w.feed_forward, m.how, k.feed_forward, m.hidden);      // (T, D)
}

/// ## Backward
/// The gradient of the source is added to `dsource`, (T_e, D), and that of scores to `dbias`, where there is
/// one.
template <class Division, Layout X, Layout C, Layout R, class Y, class Put>
X attend_backward(const Division& division, const T5Attention<X, C, R>& w, const X& d, const Sight& sight,
                  T5AttentionKept<X, C>& k, const std::type_identity_t<X>* source, Y& dsource, Tensor* dbias,
                  const Put& put) {
  const Arithmetic& how = division.m.how;
  const X& of_keys = source != nullptr ? *source : k.n;
  put("output", matmul(transposed(k.o), d));  // (H d, D)
  auto [dq, dk, dv] = attention_backward(matmul(d, transposed(w.output)), k.o, k.q, k.k, k.v, sight.at_q,
                                         sight.at_k, sight.heads, k.softmax, dbias);
  dq = on_grid(std::move(dq), how);               // (T, H d)
  dk = on_grid(std::move(dk), how);               // (T, H d)   or (T_e, H d)
  put("query", matmul(transposed(k.n), dq));      // (D, H d)
  put("key", matmul(transposed(of_keys), dk));    // (D, H d)
  put("value", matmul(transposed(of_keys), dv));  // (D, H d)
  Y dn = matmul(dq, transposed(w.query));         // (T, D)
  Y& dkeys = source != nullptr ? dsource : dn;    // (T_e, D)   or (T, D)
  accumulate(dkeys, matmul(dk, transposed(w.key)));
  accumulate(dkeys, matmul(dv, transposed(w.value)));
  return norm_backward("norm", division.sum(std::move(dn)), w.norm, how, k.norm, put);
}
template <class Division, Layout X, Layout C, Layout R, class Put>
X feed_forward_block_backward(const Division& division, const T5Block<X, C, R>& w, const X& d,
                              T5BlockKept<X, C>& k, const Put& put) {
  const T5Model& m = division.m;
  auto dy = feed_forward_backward(d, k.f, w.feed_forward, m.how, std::move(k.feed_forward), m.hidden);
  X dn = division.sum(std::move(dy.n));               // (T, D)
  if (m.has_gate()) put("gate", std::move(dy.gate));  // (D, F)
  put("up", std::move(dy.up));                        // (D, F)
  put("down", std::move(dy.down));                    // (F, D)
  return norm_backward("feed_forward_norm", std::move(dn), w.feed_forward_norm, m.how, k.feed_forward_norm,
                       put);
}

}  // namespace shard::decoders
