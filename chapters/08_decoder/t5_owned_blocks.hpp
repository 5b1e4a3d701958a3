#pragma once

/// A block of an encoder-decoder on a device that has all of it, and all rows. t5_single.hpp spells out the
/// same steps. Gradients of weights are added to sums, as micro-batches follow one another.

#include "t5_sight.hpp"

namespace shard::decoders {

/// Parameters, or sums of their gradients, each on its device, and what a forward pass keeps.
/// @{
using T5OwnedAttention = T5Attention<Owned, Owned, Owned>;
using T5OwnedBlock = T5Block<Owned, Owned, Owned>;
using T5OwnedWeights = T5Weights<Owned, Owned, Owned, Owned>;
using T5StageKept = T5Kept<Owned, Owned>;
/// @}

/// Adds the gradient of a norm's weights to `sum`, (D). Returns that of its rows.
inline Owned norm_backward(Owned dy, const Owned& w, const T5Model& m, const Normed& kept, Owned& sum) {
  Owned dw;  // (D)
  Owned dx = rms_norm_backward(std::move(dy), w, m.how, kept, dw);
  accumulate(sum, std::move(dw));
  return dx;
}

/// Keys and values are made of `source`, (T_e, D), or of what queries are made of.
inline Owned attend(const T5Model& m, const T5OwnedAttention& w, const Owned& x, const Sight& sight,
                    T5AttentionKept<Owned, Owned>& k, const Owned* source, KeyValueCache& cache) {
  k.n = rms_norm(x, w.norm, m.epsilon, m.how, k.norm);  // (T, D)
  const Owned& of_keys = source != nullptr ? *source : k.n;
  k.q = matmul(k.n, w.query);      // (T, H d)
  k.k = matmul(of_keys, w.key);    // (T, H d)   or (T_e, H d)
  k.v = matmul(of_keys, w.value);  // (T, H d)   or (T_e, H d)
  const auto [keys, values, at] = cache.seen(sight.kept_as, k.k, k.v, sight.at_k);
  k.o = attention(k.q, keys, values, sight.at_q, at, sight.heads, k.softmax);  // (T, H d)
  return matmul(k.o, w.output);                                                // (T, D)
}
inline Owned attend_backward(const T5Model& m, const T5OwnedAttention& w, const Owned& d, const Sight& sight,
                             T5AttentionKept<Owned, Owned>& k, const Owned* source, Owned& dsource,
                             Tensor* dbias, T5OwnedAttention& dw) {
  const Owned& of_keys = source != nullptr ? *source : k.n;
  accumulate(dw.output, matmul(transposed(k.o), d));  // (H d, D)
  auto [dq, dk, dv] = attention_backward(matmul(d, transposed(w.output)), k.o, k.q, k.k, k.v, sight.at_q,
                                         sight.at_k, sight.heads, k.softmax, dbias);
  dq = on_grid(std::move(dq), m.how);                     // (T, H d)
  dk = on_grid(std::move(dk), m.how);                     // (T, H d)   or (T_e, H d)
  accumulate(dw.query, matmul(transposed(k.n), dq));      // (D, H d)
  accumulate(dw.key, matmul(transposed(of_keys), dk));    // (D, H d)
  accumulate(dw.value, matmul(transposed(of_keys), dv));  // (D, H d)
  Owned dn = matmul(dq, transposed(w.query));             // (T, D)
  Owned& dkeys = source != nullptr ? dsource : dn;        // (T_e, D)   or (T, D)
  accumulate(dkeys, matmul(dk, transposed(w.key)));
  accumulate(dkeys, matmul(dv, transposed(w.value)));
  return norm_backward(std::move(dn), w.norm, m, k.norm, dw.norm);
}

inline Owned think(const T5Model& m, const T5OwnedBlock& w, const Owned& x, T5BlockKept<Owned, Owned>& k) {
  k.f = rms_norm(x, w.feed_forward_norm, m.epsilon, m.how, k.feed_forward_norm);  // (T, D)
  return feed_forward(k.f, w.feed_forward, m.how, k.feed_forward, m.hidden);      // (T, D)
}
inline Owned think_backward(const T5Model& m, const T5OwnedBlock& w, const Owned& d,
                            T5BlockKept<Owned, Owned>& k, T5OwnedBlock& dw) {
  auto dy = feed_forward_backward(d, k.f, w.feed_forward, m.how, std::move(k.feed_forward), m.hidden);
  if (m.has_gate()) accumulate(dw.feed_forward.gate, std::move(dy.gate));  // (D, F)
  accumulate(dw.feed_forward.up, std::move(dy.up));                        // (D, F)
  accumulate(dw.feed_forward.down, std::move(dy.down));                    // (F, D)
  return norm_backward(std::move(dy.n), w.feed_forward_norm, m, k.feed_forward_norm, dw.feed_forward_norm);
}

}  // namespace shard::decoders
