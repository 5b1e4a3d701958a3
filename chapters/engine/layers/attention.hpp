#pragma once

/// Attention: o = softmax(q kᵀ · scale) v for each head of each sequence. A query sees the keys at its own
/// position and before, or only the last `window` of them, or all keys. Query heads may share a key-value
/// head (grouped-query attention, Ainslie et al. 2023). Sequences and heads do not see one another. Scores
/// may have a bias (relative_positions.hpp).
///
/// The softmax is computed online (Milakov and Gimelshein 2018): keys may come in pieces. For each query we
/// keep the largest score m so far, the sum l of powers base^(s − m), and the sum of these powers times the
/// values. Where a piece has a larger score, the sums so far are multiplied by base^(m − m'). The backward
/// pass computes the scores of a piece again from q and k, so scores are never kept (Dao et al. 2022,
/// "FlashAttention", section 3).

#include <optional>

#include "engine/layers/arithmetic.hpp"
#include "engine/layers/layout_of_rows.hpp"

namespace shard {

/// Which heads of which sequences a device computes, and how.
struct AttentionHeads {
  Index sequences = 0;
  Index head_dim = 1;
  std::vector<Index> key_head;  ///< for each query head here, its key-value head here
  Index key_heads = 0;          ///< key-value heads here
  std::optional<Index> window = std::nullopt;
  Arithmetic how = {};
  bool is_causal = true;         ///< else a query sees the keys behind it, too
  const Tensor* bias = nullptr;  ///< added to scaled scores: (s · n, heads), a row for each query and key

  Index query_width() const { return static_cast<Index>(key_head.size()) * head_dim; }
  Index key_width() const { return key_heads * head_dim; }
};

/// Query heads `mine` of all, where `shared` neighbours share a key-value head; key-value heads are counted
/// from `first_key_head`.
std::vector<Index> key_heads_of(Range mine, Index shared, Index first_key_head);

/// What the online softmax has seen so far, of each head of each run of queries of each sequence. In a run,
/// positions follow one another. Most devices have one run; one that has two pieces of each sequence has two.
struct OnlineSoftmax {
  std::vector<Tensor> largest;   // (s) each
  std::vector<Tensor> sums;      // (s) each
  std::vector<Tensor> weighted;  // (s, d) each; empty after `attended`
};

/// q (sequences · s, heads · d) at positions `at_q` (s), and a piece of keys and values, each
/// (sequences · n, key heads · d), at positions `at_k` (n).
struct AttentionPiece {
  const Tensor& q;
  const Tensor& k;
  const Tensor& v;
  std::span<const Index> at_q, at_k;
};

/// Adds a piece of keys. It is computed by blocks, a run of queries and a run of keys. A block in which no
/// query sees a key is left out.
void attend(const AttentionPiece& piece, const AttentionHeads& heads, OnlineSoftmax& softmax);
/// The result, like q, after the last piece. What was seen stays, for the backward pass.
Tensor attended(const AttentionHeads& heads, Index rows, OnlineSoftmax& softmax);

/// What a piece adds to the gradients of q, k and v. They are like these.
struct AttentionGradients {
  Tensor dq, dk, dv;
};
/// `o` is the result, and dout its gradient. Adds the gradient of the bias, over all sequences, to `dbias`,
/// if there is one: (s · n, heads).
AttentionGradients attend_backward(const Tensor& dout, const Tensor& o, const AttentionPiece& piece,
                                   const AttentionHeads& heads, const OnlineSoftmax& softmax,
                                   Tensor* dbias = nullptr);

namespace detail {

/// The gradient of keys that lie as K, for queries that lie as Q, if attention takes them: queries, keys and
/// values lie alike. Or every device has all key-value heads, and only some query heads: then the gradient is
/// an addend. On a mesh: letter by letter.
template <class Q, class K>
struct KeyGradient {};
template <class L>
struct KeyGradient<L, L> {
  using type = L;
};
template <>
struct KeyGradient<Sharded<1>, Replicated> {
  using type = Partial;
};
template <>
struct KeyGradient<OfWholePieces<1>, Replicated> {
  using type = Partial;
};
template <class Axes, class... Q, class... K>
requires(!std::same_as<std::tuple<Q...>, std::tuple<K...>> && (requires {
  typename KeyGradient<Q, K>::type;
} && ...)) struct KeyGradient<OnMesh<Axes, Q...>, OnMesh<Axes, K...>> {
  using type = OnMesh<Axes, typename KeyGradient<Q, K>::type...>;
};

}  // namespace detail

/// \name Layouts
/// A device has whole sequences: all of them (Replicated, Owned), or some (Sharded<0>); or some heads of all
/// (Sharded<1>).
/// @{
template <detail::Reduced Q, detail::Reduced K>
Q attention(const Q& q, const K& k, const K& v, std::span<const Index> at_q, std::span<const Index> at_k,
            const AttentionHeads& heads, OnlineSoftmax& softmax, SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  using detail::Access;
  static_assert(
      requires { typename detail::KeyGradient<Q, K>::type; },
      "attention: queries, keys and values lie alike; or every device has all key-value heads for "
      "its query heads");
  attend({Access::tensor(q), Access::tensor(k), Access::tensor(v), at_q, at_k}, heads, softmax);
  return detail::relaid(attended(heads, Access::tensor(q).extent(0), softmax), q);
}

template <class Q, class K>
struct AttentionGradientsOf {
  Q dq;
  typename detail::KeyGradient<Q, K>::type dk, dv;
};
template <detail::Reduced Q, detail::Reduced K>
AttentionGradientsOf<Q, K> attention_backward(const Q& dout, const Q& o, const Q& q, const K& k, const K& v,
                                              std::span<const Index> at_q, std::span<const Index> at_k,
                                              const AttentionHeads& heads, const OnlineSoftmax& softmax,
                                              Tensor* dbias = nullptr,
                                              SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  using detail::Access;
  AttentionGradients d = attend_backward(
      Access::tensor(dout), Access::tensor(o),
      {Access::tensor(q), Access::tensor(k), Access::tensor(v), at_q, at_k}, heads, softmax, dbias);
  using DK = typename detail::KeyGradient<Q, K>::type;
  auto like_k = [&](Tensor t) {
    return Access::make<DK>(k.group(), std::move(t), k.global_shape(), Access::place(k));
  };
  return {detail::relaid(std::move(d.dq), q), like_k(std::move(d.dk)), like_k(std::move(d.dv))};
}
template <detail::Reduced Q, detail::Reduced K>
AttentionGradientsOf<Q, K> attention_backward(const Q& dout, const Q& o, const Q& q, const K& k, const K& v,
                                              std::span<const Index> at, const AttentionHeads& heads,
                                              const OnlineSoftmax& softmax,
                                              SourceLine where = SourceLine::current()) {
  return attention_backward(dout, o, q, k, v, at, at, heads, softmax, nullptr, where);
}
/// The gradient of queries or of keys, back on the grid: the scale of scores makes its unit small. (Rotary
/// positions do this by themselves.) A Partial is to be reduced first.
template <detail::Reduced L>
requires(!std::is_lvalue_reference_v<L>) L
    on_grid(L&& dt, const Arithmetic& how, SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  return detail::relaid<L>(how.rounded(detail::Access::take(std::move(dt))), dt);
}
/// @}

/// \name Rotary positions (Su et al. 2021)
/// Rows are tokens of `sequences` sequences, each at positions `at`.
/// @{
struct Rotary {
  Index head_dim;
  double base;
  Arithmetic how;
};
Tensor rotary(Tensor t, Index sequences, std::span<const Index> at, const Rotary& settings);
Tensor rotary_backward(Tensor dt, Index sequences, std::span<const Index> at, const Rotary& settings);
/// A token's heads are turned by the token's position, so any layout of whole heads will do.
template <detail::Reduced L>
L rotary(L&& t, Index sequences, std::span<const Index> at, const Rotary& settings,
         SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  return detail::relaid(rotary(detail::Access::take(std::move(t)), sequences, at, settings), t);
}
/// A turn is linear, but it is rounded: a Partial is to be reduced first.
template <detail::Reduced L>
L rotary_backward(L&& dt, Index sequences, std::span<const Index> at, const Rotary& settings,
                  SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  return detail::relaid(rotary_backward(detail::Access::take(std::move(dt)), sequences, at, settings), dt);
}
/// @}

}  // namespace shard
