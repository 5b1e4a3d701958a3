#pragma once

/// A decoder's block, forward and backward, written once for all engines that train one, here and in chapter
/// 09. The layouts of the weights say what is divided. What an engine does with divided tensors, its
/// `division` says. It has the sizes, `m`, and these functions:
///
///     all_rows(n)                          all rows of a norm's result n; a device may have only some
///     sum(y)                               y of attention or of the feed-forward, as the residual stream lies: a
///                                          Partial, where heads and hidden units are divided, is summed
///     attention(t, k, ...)                 o (T, H d) from k.q, k.k and k.v
///     attention_backward(dout, t, k, ...)  the gradients of q, k and v
///     of_all(dk)                           the gradient of keys or values, over the query heads of all devices
///     of_attention(dq, dk, dv, w)          the gradient of n (T, D), through queries, keys and values
///     of_my_rows(choice, k)                the experts that the tokens of this device's rows chose
///
/// put(what, gradient) is called with the gradient of each weight as soon as it is computed (gradients.hpp).
/// `what` is a part of a block (blocks.hpp), or a name.

#include "gradients.hpp"
#include "vocabulary_loss.hpp"

namespace shard::decoders {

/// What a block keeps for its backward pass. X is the layout of the rows that its products read, and N that
/// of the norms' results; H of heads and hidden units, G of keys and values, and Y of the block's result. C
/// and F are those of its weights (blocks.hpp).
template <Layout X, Layout C, Layout G, Layout Y, Layout N = X, Layout F = C>
struct BlockKept {
  using H = ProductOf<X, C>;
  Normed attention_norm, feed_forward_norm;
  N n;                    // (T, D)     what attention reads
  H q, o;                 // (T, H d)
  G k, v;                 // (T, G d)
  OnlineSoftmax softmax;  //            of each head and token: the largest score, and the sum of powers
  N f;                    // (T, D)     what the feed-forward reads
  FeedForwardKept<ProductOf<X, F>> feed_forward;
  MixtureKept<X, F, Y> mixture;
};

/// What a forward pass keeps.
template <class AnyBlockKept, class X>
struct Kept {
  Tokens tokens;
  std::vector<AnyBlockKept> blocks{};
  Normed norm{};
  X n{};                   // (T, D)     what the head reads
  TokenSoftmax softmax{};  // (T, V)
};

template <class D>
concept IsDivision = requires(D& division) {
  division.m;
};

/// ## Attention, with rotary positions
template <IsDivision Division, class W, class X, class AnyKept, class... More>
auto attend(Division& division, const W& w, const X& x, const Tokens& t, AnyKept& k, More&&... more) {
  const DecoderModel& m = division.m;
  k.n = rms_norm(x, w.attention_norm, m.epsilon, m.how, k.attention_norm);  // (T, D)
  const auto& n = division.all_rows(k.n);
  k.q = matmul(n, w.query);  // (T, H d)
  k.k = matmul(n, w.key);    // (T, G d)
  k.v = matmul(n, w.value);  // (T, G d)
  if (m.has_bias) {
    const auto ones = ones_for(n);  // (T, 1)
    add_bias(k.q, ones, w.query_bias), add_bias(k.k, ones, w.key_bias), add_bias(k.v, ones, w.value_bias);
  }
  k.q = rotary(std::move(k.q), t.sequences, t.positions, rotary_of(m));
  k.k = rotary(std::move(k.k), t.sequences, t.positions, rotary_of(m));
  k.o = division.attention(t, k, std::forward<More>(more)...);  // (T, H d)
  return matmul(k.o, w.output);                                 // (T, D)
}
template <IsDivision Division, class W, class D, class AnyKept, class Put, class... More>
auto attend_backward(Division& division, const W& w, const D& d, const Tokens& t, AnyKept& k, const Put& put,
                     More&&... more) {
  const DecoderModel& m = division.m;
  put(of_block::output, matmul(transposed(k.o), d));  // (H d, D)
  auto of = division.attention_backward(matmul(d, transposed(w.output)), t, k, std::forward<More>(more)...);
  const auto dq = rotary_backward(std::move(of.dq), t.sequences, t.positions, rotary_of(m));  // (T, H d)
  const auto dk =
      rotary_backward(division.of_all(std::move(of.dk)), t.sequences, t.positions, rotary_of(m));  // (T, G d)
  const auto dv = division.of_all(std::move(of.dv));                                               // (T, G d)
  const auto& n = division.all_rows(std::move(k.n));                                               // (T, D)
  put(of_block::query, matmul(transposed(n), dq));                                                 // (D, H d)
  put(of_block::key, matmul(transposed(n), dk));                                                   // (D, G d)
  put(of_block::value, matmul(transposed(n), dv));                                                 // (D, G d)
  if (m.has_bias) {
    const auto ones = ones_for(n);                            // (T, 1)
    put(of_block::query_bias, matmul(transposed(ones), dq));  // (1, H d)
    put(of_block::key_bias, matmul(transposed(ones), dk));    // (1, G d)
    put(of_block::value_bias, matmul(transposed(ones), dv));  // (1, G d)
  }
  return norm_backward(of_block::attention_norm, division.of_attention(dq, dk, dv, w), w.attention_norm,
                       m.how, k.attention_norm, put);
}

/// ## The feed-forward, or the experts that the router chooses
template <IsDivision Division, class W, class X, class AnyKept>
auto feed_forward_block(Division& division, const W& w, const X& x, AnyKept& k) {
  const DecoderModel& m = division.m;
  k.f = rms_norm(x, w.feed_forward_norm, m.epsilon, m.how, k.feed_forward_norm);  // (T, D)
  const auto& f = division.all_rows(k.f);
  if (!m.is_mixture()) return feed_forward(f, w.experts[0], m.how, k.feed_forward);  // (T, D)
  ExpertChoice choice = choose_experts(matmul(f, w.router), m.top_k, m.how);         // of (T, E)
  return mixture_of_experts(f, std::move(choice), w.experts, m.how, k.mixture);      // (T, D)
}
template <IsDivision Division, class W, class D, class AnyKept, class Put>
auto feed_forward_block_backward(Division& division, const W& w, const D& d, AnyKept& k, const Put& put) {
  const DecoderModel& m = division.m;
  std::remove_cvref_t<decltype(k.f)> dn;  // (T, D)
  if (m.is_mixture()) {
    auto dy = mixture_of_experts_backward(d, w.experts, m.how, k.mixture);
    for (std::size_t e = 0; e < dy.experts.size(); ++e) put_expert(e, std::move(dy.experts[e]), put);
    const auto dlogits = choose_experts_backward(division.sum(std::move(dy.gates)),
                                                 division.of_my_rows(k.mixture.choice, k), m.how);  // (T, E)
    put(of_block::router, matmul(transposed(k.f), dlogits));                                        // (D, E)
    dn = division.sum(std::move(dy.n));
    accumulate(dn, matmul(dlogits, transposed(w.router)));
  } else {
    auto dy = feed_forward_backward(d, division.all_rows(std::move(k.f)), w.experts[0], m.how,
                                    std::move(k.feed_forward));
    dn = division.sum(std::move(dy.n));
    put_expert(0, std::move(dy), put);
  }
  return norm_backward(of_block::feed_forward_norm, std::move(dn), w.feed_forward_norm, m.how,
                       k.feed_forward_norm, put);
}

/// ## The last norm, the head, and the loss of each token, (T, 1)
template <IsDivision Division, class X, class N, class E, class AnyKept>
auto losses_of(Division& division, const LanguageModel& engine, const X& x, const N& norm, const E& head,
               const Tokens& t, AnyKept& kept) {
  const DecoderModel& m = division.m;
  kept.n = rms_norm(x, norm, m.epsilon, m.how, kept.norm);                                 // (T, D)
  auto z = scale(matmul(division.all_rows(kept.n), transposed(head)), m.how.logit_scale);  // (T, V)
  engine.show_logits(z, t);
  return cross_entropy(std::move(z), t, m.how, kept.softmax);
}
/// The gradient of x, (T, D). That of the head, (V, D), is added to `dhead`.
template <IsDivision Division, class D, class N, class E, class AnyKept, class DHead, class Put>
auto losses_backward(Division& division, const D& dlosses, const N& norm, const E& head, const Tokens& t,
                     AnyKept& kept, DHead& dhead, const Put& put,
                     const std::string& norm_name = final_norm_name()) {
  auto dz = cross_entropy_backward(dlosses, head, t, division.m.how, std::move(kept.softmax));  // (T, V)
  accumulate(dhead, matmul(transposed(dz), division.all_rows(std::move(kept.n))));              // (V, D)
  auto d = division.sum(matmul(dz, head));                                                      // (T, D)
  dz = {};
  return norm_backward(norm_name, std::move(d), norm, division.m.how, kept.norm, put);
}

}  // namespace shard::decoders
