#pragma once

/// Attention: o = softmax(q kᵀ · scale) v for each head of each sequence. A query sees the keys at its own
/// position and before, or only the last `window` of them, or all keys. Query heads may share a key-value
/// head (grouped-query attention, Ainslie et al. 2023). Sequences and heads are independent. Scores may have
/// a bias by relative positions.
///
/// The softmax is computed online (Milakov and Gimelshein 2018): keys may come in pieces. For each query we
/// keep the largest score m so far, the sum l of powers base^(s − m), and the sum of these powers times the
/// values. Where a piece has a larger score, the sums so far are multiplied by base^(m − m'). The backward
/// pass computes the scores of a piece again from q and k, so scores are never kept (Dao et al. 2022,
/// "FlashAttention", section 3). A long piece is cut into blocks of queries and keys: all of its scores never exist
/// at once.

#include <optional>
#include <span>

#include "engine/device/device.hpp"
#include "engine/layers/arithmetic.hpp"
#include "engine/layers/layout_of_rows.hpp"

namespace shard {

/// Relative positions (Raffel et al. 2020, section 2.1): each head of attention adds a number to a score, by
/// the distance of the key from the query. Large distances share buckets. All blocks of a stack share one
/// table of these numbers, (buckets, H). The bias of all queries and keys is an embedding: of each bucket its
/// row.
struct RelativePositions {
  Index buckets = 32;
  Index max_distance = 128;  ///< from this distance on, all are in one bucket
  /// Whether half of the buckets are for keys behind the query; else such keys have the bucket of distance 0.
  bool is_bidirectional = true;
};

/// The bucket of each query and key, (s · n), in the order of the rows of a bias (AttentionHeads). Half of
/// the buckets have one small distance each. Each of the others has more distances than the one before.
std::vector<Index> buckets_of(std::span<const Index> at_q, std::span<const Index> at_k,
                              const RelativePositions& settings);

/// Which heads of which sequences a device computes, and how.
struct AttentionHeads {
  Index sequences = 0;
  Index head_dim = 1;
  std::vector<Index> key_head;  ///< for each query head of this device, the index of its key-value head here
  Index key_heads = 0;          ///< the number of key-value heads of this device
  std::optional<Index> window = std::nullopt;
  Arithmetic how = {};
  bool is_causal = true;         ///< otherwise a query sees all keys, those behind it too
  const Tensor* bias = nullptr;  ///< added to scaled scores: (s · n, heads), a row for each query and key;
                                 ///< positions then follow one another
  Index block_rows = 512;  ///< scores exist for so many queries and keys at once, unless they have a bias

  Index query_width() const { return static_cast<Index>(key_head.size()) * head_dim; }
  Index key_width() const { return key_heads * head_dim; }
};

/// The key-value head of each query head in `mine`, if `shared` neighbours share one. Key-value heads are
/// counted from `first_key_head`.
std::vector<Index> key_heads_of(Range mine, Index shared, Index first_key_head);

/// The state of the online softmax. A part is some heads of some sequences, which are computed together: as many
/// as need no more memory, for scores or for queries and keys, than all queries or all keys take. A part has a
/// tensor for each run of queries with consecutive positions. Most devices have one run; a device with two pieces
/// of each sequence has two.
struct OnlineSoftmax {
  Index sequences_at_once = 1, heads_at_once = 1;
  std::vector<Tensor> largest;   // (b s) each, for b heads of sequences
  std::vector<Tensor> sums;      // (b s) each
  std::vector<Tensor> weighted;  // (b s, d) each; empty after `attended`
  std::vector<bool> has_keys;    // whether the queries have seen keys
};

/// q (sequences · s, heads · d) at positions `at_q` (s), and a piece of keys and values, each
/// (sequences · n, key heads · d), at positions `at_k` (n).
struct AttentionPiece {
  const Tensor& q;
  const Tensor& k;
  const Tensor& v;
  std::span<const Index> at_q, at_k;
};

/// Adds a piece of keys, block by block: a run of queries and a run of keys. A block in which no query sees a
/// key is skipped.
void attend(const AttentionPiece& piece, const AttentionHeads& heads, OnlineSoftmax& softmax);
/// The result, like q, after the last piece. The backward pass needs the rest of the state.
Tensor attended(const AttentionHeads& heads, Index rows, OnlineSoftmax& softmax);

/// The addends of a piece to the gradients of q, k and v, in their shapes.
struct AttentionGradients {
  Tensor dq, dk, dv;
};
/// `o` is the result, and dout its gradient. If there is a bias, adds its gradient over all sequences to
/// `dbias` (s · n, heads).
AttentionGradients attend_backward(const Tensor& dout, const Tensor& o, const AttentionPiece& piece,
                                   const AttentionHeads& heads, const OnlineSoftmax& softmax,
                                   Tensor* dbias = nullptr);

namespace detail {

/// The layout of the keys' gradient, for queries in layout Q and keys in layout K. Attention takes equal
/// layouts, or query heads that are cut while every device has all key-value heads; then the gradient is an
/// addend. On a mesh: letter by letter.
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

template <class Q, class K>
using KeyGradient = typename detail::KeyGradient<Q, K>::type;

/// \name Layouts
/// A device has whole sequences, all of them (Replicated, Owned) or some (Sharded<0>), or some heads of all
/// sequences (Sharded<1>).
/// @{
template <detail::Reduced Q, detail::Reduced K>
Q attention(const Q& q, const K& k, const K& v, std::span<const Index> at_q, std::span<const Index> at_k,
            const AttentionHeads& heads, OnlineSoftmax& softmax, SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  using detail::Access;
  static_assert(
      requires { typename KeyGradient<Q, K>; },
      "attention: queries, keys and values lie alike; or every device has all key-value heads for "
      "its query heads");
  attend({Access::tensor(q), Access::tensor(k), Access::tensor(v), at_q, at_k}, heads, softmax);
  return relaid(attended(heads, Access::tensor(q).extent(0), softmax), q);
}

template <class Q, class K>
struct AttentionGradientsOf {
  Q dq;
  KeyGradient<Q, K> dk, dv;
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
  return {relaid(std::move(d.dq), q), like_k(std::move(d.dk)), like_k(std::move(d.dv))};
}
template <detail::Reduced Q, detail::Reduced K>
AttentionGradientsOf<Q, K> attention_backward(const Q& dout, const Q& o, const Q& q, const K& k, const K& v,
                                              std::span<const Index> at, const AttentionHeads& heads,
                                              const OnlineSoftmax& softmax,
                                              SourceLine where = SourceLine::current()) {
  return attention_backward(dout, o, q, k, v, at, at, heads, softmax, nullptr, where);
}
/// Rounds the gradient of queries or keys to the grid, since the scale of scores makes its unit small.
/// (Rotary positions round it themselves.) A Partial must be reduced first.
template <detail::Reduced L>
requires(!std::is_lvalue_reference_v<L>) L
    on_grid(L&& dt, const Arithmetic& how, SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  return relaid<L>(how.rounded(detail::Access::take(std::move(dt))), dt);
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
/// Rotates each head of a token by the token's position, so any layout of whole heads works.
template <detail::Reduced L>
L rotary(L&& t, Index sequences, std::span<const Index> at, const Rotary& settings,
         SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  return relaid(rotary(detail::Access::take(std::move(t)), sequences, at, settings), t);
}
/// A rotation is linear, but its result is rounded, so a Partial must be reduced first.
template <detail::Reduced L>
L rotary_backward(L&& dt, Index sequences, std::span<const Index> at, const Rotary& settings,
                  SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  return relaid(rotary_backward(detail::Access::take(std::move(dt)), sequences, at, settings), dt);
}
/// @}

}  // namespace shard
