#include "engine/layers/attention.hpp"

#include <algorithm>
#include <cmath>

#include "engine/device/books/memory.hpp"

namespace shard {

namespace {

/// The bucket of a distance of 0 or more. Computed in float32, as in the training of the published networks.
Index bucket_of(Index distance, Index buckets, Index max_distance) {
  const Index exact = buckets / 2;
  if (distance < exact) return distance;
  const float far = std::log(static_cast<float>(distance) / static_cast<float>(exact));
  const auto farthest =
      static_cast<float>(std::log(static_cast<double>(max_distance) / static_cast<double>(exact)));
  return std::min(exact + static_cast<Index>(far / farthest * static_cast<float>(buckets - exact)),
                  buckets - 1);
}

}  // namespace

std::vector<Index> buckets_of(std::span<const Index> at_q, std::span<const Index> at_k,
                              const RelativePositions& settings) {
  const auto [buckets, max_distance, is_bidirectional] = settings;
  std::vector<Index> all;
  for (Index q : at_q)
    for (Index k : at_k) {
      if (is_bidirectional)
        all.push_back((k > q ? buckets / 2 : 0) + bucket_of(std::abs(k - q), buckets / 2, max_distance));
      else
        all.push_back(bucket_of(std::max<Index>(q - k, 0), buckets, max_distance));
    }
  return all;
}

namespace {

/// The runs of at most so many indices with consecutive positions.
std::vector<Range> runs_of(std::span<const Index> at, Index at_most) {
  std::vector<Range> runs;
  const auto all = static_cast<Index>(at.size());
  for (Index begin = 0, end = 1; begin < all; begin = end++) {
    const Index* here = &at[static_cast<std::size_t>(begin)];
    while (end < all && end - begin < at_most && here[end - begin] == here[0] + end - begin) ++end;
    runs.push_back({begin, end});
  }
  return runs;
}

/// How many queries, and keys, a block has at most. A bias is a matrix of all scores: then a block is a whole run.
Index rows_at_once(const AttentionPiece& piece, const AttentionHeads& heads) {
  const Index all = std::max(std::ssize(piece.at_q), std::ssize(piece.at_k));
  return heads.bias != nullptr ? all : std::min(all, heads.block_rows);
}

/// A run of queries and a run of keys, where some query sees some key: query i of its run sees the keys i + first
/// to i + last of the other.
struct Block {
  std::size_t query_run, key_run;
  Range queries, keys;
  Index first, last;
};

/// The runs of a piece, and its blocks in which a query sees a key.
struct Blocks {
  std::vector<Range> of_q, of_k;
  std::vector<Block> visible;

  Blocks(const AttentionPiece& piece, const AttentionHeads& heads)
      : of_q(runs_of(piece.at_q, rows_at_once(piece, heads))),
        of_k(runs_of(piece.at_k, rows_at_once(piece, heads))) {
    for (std::size_t i = 0; i < of_q.size(); ++i)
      for (std::size_t j = 0; j < of_k.size(); ++j) {
        const Index to_query = piece.at_q[static_cast<std::size_t>(of_q[i].begin)] -
                               piece.at_k[static_cast<std::size_t>(of_k[j].begin)];
        const Index first = heads.window ? to_query - *heads.window + 1 : -of_q[i].size();
        const Index last = heads.is_causal ? to_query : of_k[j].size();
        if (first < of_k[j].size() && of_q[i].size() + last > 0)
          visible.push_back({i, j, of_q[i], of_k[j], first, last});
      }
  }
};

/// Some heads of some sequences, which are computed together: their matrices are a stack.
struct Part {
  Range sequences, heads;
};

/// Divides all heads of all sequences into parts.
std::vector<Part> parts_of(const AttentionHeads& heads, const OnlineSoftmax& softmax) {
  std::vector<Part> parts;
  const auto all = static_cast<Index>(heads.key_head.size());
  for (Index s = 0; s < heads.sequences; s += softmax.sequences_at_once)
    for (Index h = 0; h < all; h += softmax.heads_at_once)
      parts.push_back({{s, std::min(s + softmax.sequences_at_once, heads.sequences)},
                       {h, std::min(h + softmax.heads_at_once, all)}});
  return parts;
}

/// Calls body(part, k) for each part, counted by k.
template <class Body>
void for_each_part(const AttentionHeads& heads, const OnlineSoftmax& softmax, const Body& body) {
  const std::vector<Part> parts = parts_of(heads, softmax);
  const bool are_alike = std::ranges::all_of(parts, [&](const Part& part) {
    return part.sequences.size() == parts[0].sequences.size() && part.heads.size() == parts[0].heads.size();
  });
  auto call = [&](Index k) { body(parts[static_cast<std::size_t>(k)], static_cast<std::size_t>(k)); };
  if (are_alike) return for_each_alike(std::ssize(parts), call);
  for (Index k = 0; k < std::ssize(parts); ++k) call(k);
}

HeadBlock queries(const AttentionHeads& heads, const Part& part, Range run) {
  HeadBlock block{heads.sequences, part.sequences, run, heads.head_dim, {}};
  for (Index h = part.heads.begin; h < part.heads.end; ++h) block.heads.push_back(h);
  return block;
}
/// The keys of a part in a run: for each query head, its key-value head.
HeadBlock keys(const AttentionHeads& heads, const Part& part, Range run) {
  HeadBlock block = queries(heads, part, run);
  for (Index& h : block.heads) h = heads.key_head[static_cast<std::size_t>(h)];
  return block;
}
/// The bias of each head of the part, repeated for each of its sequences. A row is a pair of a query and a key.
HeadBlock biases(const AttentionHeads& heads, const Part& part) {
  HeadBlock block{1, {0, 1}, {0, heads.bias->extent(0)}, 1, {}};
  for (Index s = part.sequences.begin; s < part.sequences.end; ++s)
    for (Index h = part.heads.begin; h < part.heads.end; ++h) block.heads.push_back(h);
  return block;
}

/// A stack of `count` matrices as one matrix that has the rows of all, and back.
Tensor rows_of(Tensor stack) {
  const Shape shape = stack.shape();
  return std::move(stack).reshaped({shape[0] * shape[1], shape[2]});
}
Tensor stacked(Tensor rows, Index count) {
  const Shape shape = rows.shape();
  return std::move(rows).reshaped({count, shape[0] / count, shape[1]});
}

/// Whether a bias is added to scaled scores, or they are rounded. Otherwise the softmax scales them.
bool changes_scaled(const AttentionHeads& heads) {
  return heads.bias != nullptr || heads.how.is_exact();
}
/// A query of the block sees the keys of a band.
ScoreRule rule_of(const AttentionHeads& heads, const Block& block) {
  return {changes_scaled(heads) ? 1 : heads.how.score_scale, block.first, block.last, heads.how.base};
}
/// The scores of a part, (b, s, n).
Tensor scores_of(const Tensor& q, const Tensor& k, const AttentionHeads& heads, const Part& part) {
  Tensor z = matmul(q, transposed(k));
  if (!changes_scaled(heads)) return z;
  z = scale(std::move(z), heads.how.score_scale);
  if (heads.bias != nullptr)
    z = add(std::move(z), stack_heads(*heads.bias, biases(heads, part)).reshaped(z.shape()));
  return heads.how.exponents(std::move(z));
}

/// Adds a piece of keys to the online softmax of a part: the scores z (b, s, n) and v (b, n, d), to `largest`
/// and `sums` (b s) and to `weighted` (b s, d). The first piece finds `weighted` 0, and nothing in the
/// others.
void attend_heads(Tensor z, const Tensor& v, const ScoreRule& rule, bool is_first, Tensor& largest,
                  Tensor& sums, Tensor& weighted) {
  auto [powers, m, more] = powers_of_scores(std::move(z), rule, is_first ? nullptr : &largest);
  if (!is_first) {
    const Index rows = m.size();
    const Tensor factor = exponentials(std::move(largest).reshaped({rows, 1}), m, rule.base).reshaped({rows});
    more = add(std::move(more), multiply(std::move(sums), factor));
    weighted = scale_rows(std::move(weighted), factor);
  }
  Tensor sum = stacked(std::move(weighted), v.extent(0));
  matmul_accumulate(powers, v, sum);
  weighted = rows_of(std::move(sum));
  largest = std::move(m), sums = std::move(more);
}

/// Chooses the size of parts, and makes the initial state of each part and run of queries.
void begin(OnlineSoftmax& softmax, const std::vector<Range>& runs, const AttentionPiece& piece,
           const AttentionHeads& heads) {
  const Index at_most = rows_at_once(piece, heads);
  const Index s = std::min<Index>(std::ssize(piece.at_q), at_most),
              n = std::min<Index>(std::ssize(piece.at_k), at_most);
  const Index of_head = std::max({s * n, (s + n) * heads.head_dim, Index{1}});
  const Index at_once = std::max(piece.q.size(), piece.k.size()) / of_head;
  const auto all = static_cast<Index>(heads.key_head.size());
  softmax.heads_at_once = std::clamp<Index>(at_once, 1, std::max<Index>(all, 1));
  softmax.sequences_at_once = std::max<Index>(at_once / softmax.heads_at_once, 1);
  for (const Part& part : parts_of(heads, softmax))
    for (Range run : runs) {
      const Index rows = part.sequences.size() * part.heads.size() * run.size();
      softmax.has_keys.push_back(false);
      softmax.largest.push_back(Tensor::uninitialized({rows}));
      softmax.sums.emplace_back(Shape{rows});
      softmax.weighted.emplace_back(Shape{rows, heads.head_dim});
    }
}

}  // namespace

std::vector<Index> key_heads_of(Range mine, Index shared, Index first_key_head) {
  std::vector<Index> of;
  for (Index h = mine.begin; h < mine.end; ++h) of.push_back(h / shared - first_key_head);
  return of;
}

void attend(const AttentionPiece& piece, const AttentionHeads& heads, OnlineSoftmax& softmax) {
  const Blocks blocks(piece, heads);
  if (softmax.largest.empty()) begin(softmax, blocks.of_q, piece, heads);
  for_each_part(heads, softmax, [&](const Part& part, std::size_t k) {
    for (const Block& block : blocks.visible) {
      const std::size_t i = k * blocks.of_q.size() + block.query_run;
      const HeadBlock of_keys = keys(heads, part, block.keys);
      Tensor z = scores_of(stack_heads(piece.q, queries(heads, part, block.queries)),
                           stack_heads(piece.k, of_keys), heads, part);
      attend_heads(std::move(z), stack_heads(piece.v, of_keys), rule_of(heads, block), !softmax.has_keys[i],
                   softmax.largest[i], softmax.sums[i], softmax.weighted[i]);
      softmax.has_keys[i] = true;
    }
  });
}

Tensor attended(const AttentionHeads& heads, Index rows, OnlineSoftmax& softmax) {
  Tensor out({rows, heads.query_width()});
  auto weighted = softmax.weighted.begin();
  auto sums = softmax.sums.begin();
  for (const Part& part : parts_of(heads, softmax)) {
    const Index count = part.sequences.size() * part.heads.size();
    for (Range run{0, 0}; run.end < rows / heads.sequences; run.begin = run.end) {
      run.end += weighted->extent(0) / count;
      Tensor o = heads.how.rounded(divide_rows(std::move(*weighted++), *sums++));
      add_heads(stacked(std::move(o), count), queries(heads, part, run), out);
    }
  }
  softmax.weighted.clear();
  return out;
}

namespace {

/// What the backward pass of attention reads.
struct Backward {
  const Tensor& dout;
  const Tensor& o;
  const AttentionPiece& piece;
  const AttentionHeads& heads;
};

/// Adds the gradients of a part in a block.
void part_backward(const Backward& of, const Part& part, const Block& block, const Tensor& largest,
                   const Tensor& sums, AttentionGradients& d, Tensor* dbias) {
  const AttentionHeads& heads = of.heads;
  const Arithmetic& how = heads.how;
  const HeadBlock of_queries = queries(heads, part, block.queries), of_keys = keys(heads, part, block.keys);
  const Tensor q = stack_heads(of.piece.q, of_queries), k = stack_heads(of.piece.k, of_keys);
  const Index count = q.extent(0);
  const ScoreRule rule = rule_of(heads, block);
  Tensor p = how.rounded(softmax_of_scores(scores_of(q, k, heads, part), rule, largest, sums));  // (b, s, n)
  Tensor dout = stack_heads(of.dout, of_queries);
  add_heads(matmul(transposed(p), dout), of_keys, d.dv);                   // pᵀ do
  Tensor ds = matmul(dout, transposed(stack_heads(of.piece.v, of_keys)));  // dp = do vᵀ
  const Tensor dots = row_dots(rows_of(std::move(dout)), rows_of(stack_heads(of.o, of_queries)));  // Σ p dp
  ds = how.rounded(softmax_of_scores_backward(std::move(ds), p, dots, rule.scale));  // (b, s, n)
  p = Tensor();
  if (dbias != nullptr) {
    ds = std::move(ds).reshaped({count, heads.bias->extent(0), 1});
    add_heads(ds, biases(heads, part), *dbias);
    ds = std::move(ds).reshaped({count, block.queries.size(), block.keys.size()});
  }
  if (changes_scaled(heads)) ds = scale(std::move(ds), how.score_scale);
  add_heads(matmul(transposed(ds), q), of_keys, d.dk);
  add_heads(matmul(ds, k), of_queries, d.dq);
}

}  // namespace

AttentionGradients attend_backward(const Tensor& dout, const Tensor& o, const AttentionPiece& piece,
                                   const AttentionHeads& heads, const OnlineSoftmax& softmax, Tensor* dbias) {
  const Blocks blocks(piece, heads);
  AttentionGradients d{Tensor(piece.q.shape()), Tensor(piece.k.shape()), Tensor(piece.v.shape())};
  for_each_part(heads, softmax, [&](const Part& part, std::size_t k) {
    for (const Block& block : blocks.visible) {
      const std::size_t i = k * blocks.of_q.size() + block.query_run;
      part_backward({dout, o, piece, heads}, part, block, softmax.largest[i], softmax.sums[i], d, dbias);
    }
  });
  return d;
}

namespace {

void require_rows(const char* call, const Tensor& t, Index sequences, std::span<const Index> at) {
  const Index rows = sequences * static_cast<Index>(at.size());
  if (t.extent(0) != rows)
    refuse(Code::argument, call, std::to_string(rows) + " rows, one for each token", to_string(t.shape()));
}

}  // namespace

Tensor rotary(Tensor t, Index sequences, std::span<const Index> at, const Rotary& settings) {
  require_rows("rotary", t, sequences, at);
  return settings.how.rounded(rotate(std::move(t), at, settings.head_dim, settings.base));
}

Tensor rotary_backward(Tensor dt, Index sequences, std::span<const Index> at, const Rotary& settings) {
  require_rows("rotary_backward", dt, sequences, at);
  return settings.how.rounded(rotate_backward(std::move(dt), at, settings.head_dim, settings.base));
}

}  // namespace shard
