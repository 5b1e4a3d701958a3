#pragma once

/// Attention on five axes. A device has its heads, over tensor, of its tokens, over context. Keys and
/// values of these heads travel around the ring of the devices along context, as in chapter 08. (Part of
/// five.hpp.)

#include "08_decoder/ring_attention.hpp"
#include "08_decoder/tensor_weights.hpp"
#include "five_axes.hpp"

namespace shard::meshes {

/// The gradient of keys, or of values. Where every device along tensor has all key-value heads, it is an
/// addend: query heads of one key-value head are on several devices.
template <class K>
using KeyAddend = Activation<typename detail::KeyGradient<W<1>, K>::type>;
inline Activation<W<1>> over_heads(const FiveHere&, Activation<W<1>> dk) {
  return dk;
}
inline Activation<R> over_heads(const FiveHere& here, Activation<P> dk) {
  return here.over_tensor(std::move(dk));
}
/// The gradient of what attention reads: through queries, and through keys and values.
inline Activation<R> joined(const FiveHere& here, Activation<P> queries, Activation<P> keys) {
  return here.over_tensor(std::move(queries) + keys);
}
inline Activation<R> joined(const FiveHere& here, Activation<P> queries, Activation<R> keys) {
  return here.over_tensor(std::move(queries)) + keys;
}

/// x (T, D), tokens t, `keys`: where all devices' keys stand. An addend of (T, D).
template <class K>
Activation<P> attend(const FiveHere& here, Index b, const FiveBlock<Weight, ExpertWeight, K>& w,
                     const Activation<R>& x, const Tokens& t, const KeysOnRing& keys, FiveBlockKept<K>& k) {
  const DecoderModel& m = here.m;
  k.n = rms_norm(x, w.attention_norm, m.epsilon, m.how, k.attention_norm);     // (T, D)
  k.q = rotary(matmul(k.n, w.query), t.sequences, t.positions, rotary_of(m));  // (T, h d)   R·W1 = W1
  k.k = rotary(matmul(k.n, w.key), t.sequences, t.positions, rotary_of(m));    // (T, g d)
  k.v = matmul(k.n, w.value);                                                  // (T, g d)
  const auto [ks, vs, at] = here.cache.seen(b, k.k, k.v, t.positions);
  k.o = like(ring_attention(here.along<context>(), k.q.local(), ks.local(), vs.local(), t.positions, keys,
                            my_heads(m, here.along<tensor>(), t.sequences), k.softmax),
             k.q);               // (T, h d)
  return matmul(k.o, w.output);  // (T, D)   W1·W0 = P
}

template <class K>
struct FiveHeadGradients {
  Activation<W<1>> dq;
  Activation<K> dk, dv;
};
/// dout (T, h d) comes from behind attention.
template <class K>
FiveHeadGradients<K> attention_backward(const FiveHere& here, Activation<W<1>> dout, const Tokens& t,
                                        const KeysOnRing& keys, const FiveBlockKept<K>& k) {
  AttentionGradients d = ring_attention_backward(
      here.along<context>(), dout.local(), k.o.local(), k.q.local(), k.k.local(), k.v.local(), keys,
      my_heads(here.m, here.along<tensor>(), t.sequences), k.softmax);
  dout = {};
  auto of_keys = [&](Tensor dk) {
    return over_heads(here, KeyAddend<K>::uneven(here.mesh(), std::move(dk), k.k.global_shape()));
  };
  Activation<K> dk = of_keys(std::move(d.dk)), dv = of_keys(std::move(d.dv));
  return {like(std::move(d.dq), k.q), std::move(dk), std::move(dv)};
}

/// Adds to the gradients of the weights, g. Each is an addend over data, context and expert: a sum over my
/// rows.
template <class K>
Activation<R> attend_backward(const FiveHere& here, const FiveBlock<Weight, ExpertWeight, K>& w,
                              const Activation<R>& d, const Tokens& t, const KeysOnRing& keys,
                              FiveBlockKept<K>& k, FiveBlock<Addend, ExpertAddend, K>& g) {
  const DecoderModel& m = here.m;
  accumulate(g.output, matmul(transposed(k.o), d));  // (h d, D)   (P, O, P, P, W0)
  auto [dq, dk, dv] = attention_backward(here, matmul(d, transposed(w.output)), t, keys, k);
  dq = rotary_backward(std::move(dq), t.sequences, t.positions, rotary_of(m));  // (T, h d)
  dk = rotary_backward(std::move(dk), t.sequences, t.positions, rotary_of(m));  // (T, g d)
  accumulate(g.query, matmul(transposed(k.n), dq));                             // (D, h d)
  accumulate(g.key, matmul(transposed(k.n), dk));                               // (D, g d)
  accumulate(g.value, matmul(transposed(k.n), dv));                             // (D, g d)
  auto of_keys = matmul(dk, transposed(w.key));                                 // (T, D)   P or R
  accumulate(of_keys, matmul(dv, transposed(w.value)));
  Activation<R> dn = joined(here, matmul(dq, transposed(w.query)), std::move(of_keys));  // (T, D)
  Addend<R> dnorm;                                                                       // (D)
  dn = rms_norm_backward(std::move(dn), w.attention_norm, m.how, k.attention_norm, dnorm);
  accumulate(g.attention_norm, std::move(dnorm));
  return dn;
}

}  // namespace shard::meshes
