#include "engine/layers/attention.hpp"

#include <algorithm>

namespace shard {

namespace {

/// Sequence `sequence`: (n, w) of (sequences · n, w).
Tensor sequence_of(const Tensor& t, const AttentionHeads& heads, Index sequence) {
  const Index n = t.extent(0) / heads.sequences;
  return slice(t, 0, sequence * n, (sequence + 1) * n);
}
/// A head of a sequence: (n, d) of (n, heads · d).
Tensor head_of(const Tensor& t, const AttentionHeads& heads, Index head) {
  return slice(t, 1, head * heads.head_dim, (head + 1) * heads.head_dim);
}

/// The reverse: heads of each sequence, in this order, as (sequences · n, width).
Tensor joined(const std::vector<Tensor>& parts, Index sequences, Index rows, Index width) {
  if (rows == 0 || width == 0) return Tensor({rows, width});
  const std::size_t heads = parts.size() / static_cast<std::size_t>(sequences);
  std::vector<Tensor> wide;
  for (auto first = parts.begin(); first != parts.end(); first += static_cast<std::ptrdiff_t>(heads)) {
    std::vector<const Tensor*> of_sequence;
    for (std::size_t h = 0; h < heads; ++h) of_sequence.push_back(&first[static_cast<std::ptrdiff_t>(h)]);
    wide.push_back(concatenate(of_sequence, 1));
  }
  std::vector<const Tensor*> all;
  for (const Tensor& t : wide) all.push_back(&t);
  return concatenate(all, 0);
}

/// The first and the last position that each query sees.
struct Seen {
  std::vector<Index> first, last;

  Seen(std::span<const Index> at_q, const std::optional<Index>& window) : last(at_q.begin(), at_q.end()) {
    for (Index at : last) first.push_back(window ? at - *window + 1 : 0);
  }
  /// Whether some query sees some key.
  bool any(std::span<const Index> at_k) const {
    if (last.empty() || at_k.empty()) return false;
    return std::ranges::min(at_k) <= std::ranges::max(last) &&
           std::ranges::max(at_k) >= std::ranges::min(first);
  }
};

/// The scores of one head, (s, n): -infinity where a query does not see a key.
Tensor scores(const Tensor& q, const Tensor& k, const AttentionPiece& piece, const Seen& seen,
              const Arithmetic& how) {
  Tensor z = how.exponents(scale(matmul(q, transposed(k)), how.score_scale));
  return keep_between(std::move(z), piece.at_k, seen.first, seen.last);
}

/// The larger of the elements of two vectors (s).
Tensor larger(const Tensor& a, Tensor b) {
  const Tensor left = a.clone().reshaped({a.size(), 1}), right = std::move(b).reshaped({a.size(), 1});
  const std::array<const Tensor*, 2> both = {&left, &right};
  return row_max(concatenate(both, 1));
}

/// Adds a piece of keys of one head to what was seen before.
void attend_head(Tensor z, const Tensor& v, const Arithmetic& how, Tensor& largest, Tensor& sums,
                 Tensor& weighted) {
  Tensor m = larger(largest, row_max(z));
  const Index rows = m.size();
  Tensor factor = exponentials(std::move(largest).reshaped({rows, 1}), m, how.base).reshaped({rows});
  const Tensor powers = exponentials(std::move(z), m, how.base);  // (s, n)
  sums = add(multiply(std::move(sums), factor), row_sums(powers));
  weighted = add(scale_rows(std::move(weighted), factor), matmul(powers, v));
  largest = std::move(m);
}

Index heads_in_all(const AttentionHeads& heads) {
  return heads.sequences * static_cast<Index>(heads.key_head.size());
}

}  // namespace

std::vector<Index> key_heads_of(Range mine, Index shared, Index first_key_head) {
  std::vector<Index> of;
  for (Index h = mine.begin; h < mine.end; ++h) of.push_back(h / shared - first_key_head);
  return of;
}

void attend(const AttentionPiece& piece, const AttentionHeads& heads, OnlineSoftmax& softmax) {
  const auto rows = static_cast<Index>(piece.at_q.size());
  const Seen seen(piece.at_q, heads.window);
  if (softmax.largest.empty())
    for (Index i = 0; i < heads_in_all(heads); ++i) {
      softmax.largest.push_back(row_max(Tensor({rows, 0})));
      softmax.sums.emplace_back(Shape{rows});
      softmax.weighted.emplace_back(Shape{rows, heads.head_dim});
    }
  if (!seen.any(piece.at_k)) return;
  std::size_t i = 0;
  for (Index s = 0; s < heads.sequences; ++s) {
    const Tensor qs = sequence_of(piece.q, heads, s), ks = sequence_of(piece.k, heads, s),
                 vs = sequence_of(piece.v, heads, s);
    for (std::size_t h = 0; h < heads.key_head.size(); ++h, ++i) {
      const Tensor q = head_of(qs, heads, static_cast<Index>(h)), k = head_of(ks, heads, heads.key_head[h]),
                   v = head_of(vs, heads, heads.key_head[h]);
      attend_head(scores(q, k, piece, seen, heads.how), v, heads.how, softmax.largest[i], softmax.sums[i],
                  softmax.weighted[i]);
    }
  }
}

Tensor attended(const AttentionHeads& heads, Index rows, OnlineSoftmax& softmax) {
  std::vector<Tensor> out;
  for (std::size_t i = 0; i < softmax.weighted.size(); ++i)
    out.push_back(heads.how.rounded(divide_rows(std::move(softmax.weighted[i]), softmax.sums[i])));
  softmax.weighted.clear();
  return joined(out, heads.sequences, rows, heads.query_width());
}

namespace {

/// One head of one sequence, in the backward pass.
struct HeadHere {
  Tensor q, k, v, o, dout;
};

/// Returns dq (s, d), and adds to dk and dv (n, d).
Tensor head_backward(const HeadHere& head, const AttentionPiece& piece, const Seen& seen,
                     const Arithmetic& how, const Tensor& largest, const Tensor& sums, Tensor& dk,
                     Tensor& dv) {
  Tensor p = exponentials(scores(head.q, head.k, piece, seen, how), largest, how.base);
  p = how.rounded(divide_rows(std::move(p), sums));                            // (s, n)
  matmul_accumulate(transposed(p), head.dout, dv);                             // pᵀ do
  Tensor ds = matmul(head.dout, transposed(head.v));                           // dp = do vᵀ
  ds = add_to_columns(std::move(ds), scale(row_dots(head.dout, head.o), -1));  // dp − Σ p dp
  ds = scale(how.rounded(multiply(std::move(ds), p)), how.score_scale);        // (s, n)
  matmul_accumulate(transposed(ds), head.q, dk);
  return matmul(ds, head.k);
}

}  // namespace

AttentionGradients attend_backward(const Tensor& dout, const Tensor& o, const AttentionPiece& piece,
                                   const AttentionHeads& heads, const OnlineSoftmax& softmax) {
  const Seen seen(piece.at_q, heads.window);
  if (!seen.any(piece.at_k))
    return {Tensor(piece.q.shape()), Tensor(piece.k.shape()), Tensor(piece.v.shape())};
  const auto keys = static_cast<Index>(piece.at_k.size());
  std::vector<Tensor> dq, dk, dv;
  std::size_t i = 0;
  for (Index s = 0; s < heads.sequences; ++s) {
    const std::size_t first = dk.size();
    for (Index g = 0; g < heads.key_heads; ++g) {
      dk.emplace_back(Shape{keys, heads.head_dim});
      dv.emplace_back(Shape{keys, heads.head_dim});
    }
    const Tensor qs = sequence_of(piece.q, heads, s), ks = sequence_of(piece.k, heads, s),
                 vs = sequence_of(piece.v, heads, s), os = sequence_of(o, heads, s),
                 ds = sequence_of(dout, heads, s);
    for (std::size_t h = 0; h < heads.key_head.size(); ++h, ++i) {
      const auto head = static_cast<Index>(h);
      const Index g = heads.key_head[h];
      const std::size_t at = first + static_cast<std::size_t>(g);
      dq.push_back(head_backward({head_of(qs, heads, head), head_of(ks, heads, g), head_of(vs, heads, g),
                                  head_of(os, heads, head), head_of(ds, heads, head)},
                                 piece, seen, heads.how, softmax.largest[i], softmax.sums[i], dk[at],
                                 dv[at]));
    }
  }
  return {joined(dq, heads.sequences, piece.q.extent(0), heads.query_width()),
          joined(dk, heads.sequences, piece.k.extent(0), heads.key_width()),
          joined(dv, heads.sequences, piece.v.extent(0), heads.key_width())};
}

namespace {

/// The position of each row.
std::vector<Index> of_rows(Index sequences, std::span<const Index> at) {
  std::vector<Index> all;
  for (Index s = 0; s < sequences; ++s) all.insert(all.end(), at.begin(), at.end());
  return all;
}

}  // namespace

Tensor rotary(Tensor t, Index sequences, std::span<const Index> at, const Rotary& settings) {
  return settings.how.rounded(rotate(std::move(t), of_rows(sequences, at), settings.head_dim, settings.base));
}

Tensor rotary_backward(Tensor dt, Index sequences, std::span<const Index> at, const Rotary& settings) {
  return settings.how.rounded(
      rotate_backward(std::move(dt), of_rows(sequences, at), settings.head_dim, settings.base));
}

}  // namespace shard
