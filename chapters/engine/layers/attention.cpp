#include "engine/layers/attention.hpp"

#include <algorithm>
#include <array>

#include "engine/device/books/memory.hpp"

namespace shard {

namespace {

/// A run of sequence `sequence`: (r, w), from t (sequences · n, w).
Tensor run_of(const Tensor& t, const AttentionHeads& heads, Index sequence, Range run) {
  const Index first = sequence * (t.extent(0) / heads.sequences);
  return slice(t, 0, first + run.begin, first + run.end);
}
/// A head of a run: (r, d), from t (r, heads · d).
Tensor head_of(const Tensor& t, const AttentionHeads& heads, Index head) {
  return slice(t, 1, head * heads.head_dim, (head + 1) * heads.head_dim);
}

/// Joins the heads of each run of each sequence, in this order, to (sequences · n, width).
Tensor joined(const std::vector<Tensor>& parts, std::size_t heads, Index rows, Index width) {
  if (rows == 0 || width == 0) return Tensor({rows, width});
  std::vector<Tensor> wide;
  for (auto first = parts.begin(); first != parts.end(); first += static_cast<std::ptrdiff_t>(heads)) {
    std::vector<const Tensor*> of_run;
    for (std::size_t h = 0; h < heads; ++h) of_run.push_back(&first[static_cast<std::ptrdiff_t>(h)]);
    wide.push_back(concatenate(of_run, 1));
  }
  std::vector<const Tensor*> all;
  for (const Tensor& t : wide) all.push_back(&t);
  return concatenate(all, 0);
}

/// The runs of indices with consecutive positions.
std::vector<Range> runs_of(std::span<const Index> at) {
  std::vector<Range> runs;
  const auto all = static_cast<Index>(at.size());
  for (Index begin = 0, end = 1; begin < all; begin = end++) {
    const Index* here = &at[static_cast<std::size_t>(begin)];
    while (end < all && here[end - begin] == here[0] + end - begin) ++end;
    runs.push_back({begin, end});
  }
  return runs;
}

/// A run of queries and a run of keys of each sequence, in which some query sees some key: query i of the run sees the
/// keys i + first to i + last of theirs.
struct Block {
  std::size_t query_run, key_run;
  Range queries, keys;
  Index first, last;
};

/// The blocks of a piece.
struct Blocks {
  std::vector<Range> of_q, of_k;
  std::vector<Block> visible;

  Blocks(const AttentionPiece& piece, const AttentionHeads& heads)
      : of_q(runs_of(piece.at_q)), of_k(runs_of(piece.at_k)) {
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

/// The index of a head of a run of a sequence in a list of all heads of all runs of all sequences.
std::size_t place_of_head(Index sequence, std::size_t runs, std::size_t run, std::size_t heads, Index head) {
  return (static_cast<std::size_t>(sequence) * runs + run) * heads + static_cast<std::size_t>(head);
}

/// The bias of each head, (s, n), or an empty tensor.
std::vector<Tensor> biases(const AttentionHeads& heads, const AttentionPiece& piece) {
  std::vector<Tensor> of_heads(heads.key_head.size());
  for (std::size_t h = 0; heads.bias != nullptr && h < of_heads.size(); ++h) {
    const auto column = static_cast<Index>(h);
    of_heads[h] =
        slice(*heads.bias, 1, column, column + 1)
            .reshaped({static_cast<Index>(piece.at_q.size()), static_cast<Index>(piece.at_k.size())});
  }
  return of_heads;
}
/// The reverse of biases: (s · n, heads).
Tensor of_pairs(std::vector<Tensor> of_heads, const Shape& shape) {
  if (of_heads.empty()) return Tensor(shape);
  std::vector<const Tensor*> columns;
  for (Tensor& t : of_heads) {
    t = std::move(t).reshaped({shape[0], 1});
    columns.push_back(&t);
  }
  return concatenate(columns, 1);
}
std::vector<Tensor> zeros_like(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> zeros;
  for (const Tensor& t : tensors) zeros.emplace_back(t.shape());
  return zeros;
}

/// The scores of one head, (s, n): -infinity where a query does not see a key.
Tensor scores(const Tensor& q, const Tensor& k, const Tensor& bias, const Block& block,
              const Arithmetic& how) {
  Tensor z = scale(matmul(q, transposed(k)), how.score_scale);
  if (bias.size() > 0) z = add(std::move(z), bias);
  return keep_band(how.exponents(std::move(z)), block.first, block.last);
}

/// The elementwise maximum of two vectors (s).
Tensor larger(const Tensor& a, Tensor b) {
  const Tensor left = a.clone().reshaped({a.size(), 1}), right = std::move(b).reshaped({a.size(), 1});
  const std::array<const Tensor*, 2> both = {&left, &right};
  return row_max(concatenate(both, 1));
}

/// Adds a piece of keys of one head to the online softmax.
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

/// Initial values, for each head of each run of queries of each sequence.
void begin(OnlineSoftmax& softmax, const std::vector<Range>& runs, const AttentionHeads& heads) {
  for (Index s = 0; s < heads.sequences; ++s)
    for (Range run : runs)
      for (std::size_t h = 0; h < heads.key_head.size(); ++h) {
        softmax.largest.push_back(row_max(Tensor({run.size(), 0})));
        softmax.sums.emplace_back(Shape{run.size()});
        softmax.weighted.emplace_back(Shape{run.size(), heads.head_dim});
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
  const std::vector<Tensor> bias = biases(heads, piece);
  if (softmax.largest.empty()) begin(softmax, blocks.of_q, heads);
  for_each_alike(heads.sequences, [&](Index s) {
    for (const Block& block : blocks.visible) {
      const Tensor qs = run_of(piece.q, heads, s, block.queries), ks = run_of(piece.k, heads, s, block.keys),
                   vs = run_of(piece.v, heads, s, block.keys);
      for_each_alike(static_cast<Index>(heads.key_head.size()), [&](Index h) {
        const Index g = heads.key_head[static_cast<std::size_t>(h)];
        const std::size_t i = place_of_head(s, blocks.of_q.size(), block.query_run, heads.key_head.size(), h);
        const Tensor q = head_of(qs, heads, h), k = head_of(ks, heads, g), v = head_of(vs, heads, g);
        attend_head(scores(q, k, bias[static_cast<std::size_t>(h)], block, heads.how), v, heads.how,
                    softmax.largest[i], softmax.sums[i], softmax.weighted[i]);
      });
    }
  });
}

Tensor attended(const AttentionHeads& heads, Index rows, OnlineSoftmax& softmax) {
  std::vector<Tensor> out;
  for (std::size_t i = 0; i < softmax.weighted.size(); ++i)
    out.push_back(heads.how.rounded(divide_rows(std::move(softmax.weighted[i]), softmax.sums[i])));
  softmax.weighted.clear();
  return joined(out, heads.key_head.size(), rows, heads.query_width());
}

namespace {

/// The operands of one head of a block of a sequence, in the backward pass.
struct HeadOperands {
  Tensor q, k, v, o, dout;
  const Tensor& bias;
};

/// Adds to dq (s, d), dk and dv (n, d) and, if there is a bias, dbias (s, n).
void head_backward(const HeadOperands& head, const Block& block, const Arithmetic& how, const Tensor& largest,
                   const Tensor& sums, Tensor& dq, Tensor& dk, Tensor& dv, Tensor& dbias) {
  Tensor p = exponentials(scores(head.q, head.k, head.bias, block, how), largest, how.base);
  p = how.rounded(divide_rows(std::move(p), sums));                            // (s, n)
  matmul_accumulate(transposed(p), head.dout, dv);                             // pᵀ do
  Tensor ds = matmul(head.dout, transposed(head.v));                           // dp = do vᵀ
  ds = add_to_columns(std::move(ds), scale(row_dots(head.dout, head.o), -1));  // dp − Σ p dp
  ds = how.rounded(multiply(std::move(ds), p));                                // (s, n)
  if (dbias.size() > 0) dbias = add(std::move(dbias), ds);
  ds = scale(std::move(ds), how.score_scale);
  matmul_accumulate(transposed(ds), head.q, dk);
  matmul_accumulate(ds, head.k, dq);
}

/// Zeros for each of `heads` heads of each run of each sequence.
std::vector<Tensor> zeros(Index sequences, const std::vector<Range>& runs, Index heads, Index head_dim) {
  std::vector<Tensor> all;
  for (Index s = 0; s < sequences; ++s)
    for (Range run : runs)
      for (Index h = 0; h < heads; ++h) all.emplace_back(Shape{run.size(), head_dim});
  return all;
}

}  // namespace

AttentionGradients attend_backward(const Tensor& dout, const Tensor& o, const AttentionPiece& piece,
                                   const AttentionHeads& heads, const OnlineSoftmax& softmax, Tensor* dbias) {
  const Blocks blocks(piece, heads);
  if (blocks.visible.empty())
    return {Tensor(piece.q.shape()), Tensor(piece.k.shape()), Tensor(piece.v.shape())};
  const std::size_t query_heads = heads.key_head.size(),
                    key_heads = static_cast<std::size_t>(heads.key_heads);
  std::vector<Tensor> dq =
      zeros(heads.sequences, blocks.of_q, static_cast<Index>(query_heads), heads.head_dim);
  std::vector<Tensor> dk = zeros(heads.sequences, blocks.of_k, heads.key_heads, heads.head_dim);
  std::vector<Tensor> dv = zeros(heads.sequences, blocks.of_k, heads.key_heads, heads.head_dim);
  const std::vector<Tensor> bias = biases(heads, piece);
  std::vector<Tensor> dbiases = zeros_like(bias);
  for_each_alike(heads.sequences, [&](Index s) {
    for (const Block& block : blocks.visible) {
      const Tensor qs = run_of(piece.q, heads, s, block.queries), ks = run_of(piece.k, heads, s, block.keys),
                   vs = run_of(piece.v, heads, s, block.keys), os = run_of(o, heads, s, block.queries),
                   ds = run_of(dout, heads, s, block.queries);
      for_each_alike(static_cast<Index>(query_heads), [&](Index h) {
        const Index g = heads.key_head[static_cast<std::size_t>(h)];
        const std::size_t i = place_of_head(s, blocks.of_q.size(), block.query_run, query_heads, h);
        const std::size_t j = place_of_head(s, blocks.of_k.size(), block.key_run, key_heads, g);
        head_backward({head_of(qs, heads, h), head_of(ks, heads, g), head_of(vs, heads, g),
                       head_of(os, heads, h), head_of(ds, heads, h), bias[static_cast<std::size_t>(h)]},
                      block, heads.how, softmax.largest[i], softmax.sums[i], dq[i], dk[j], dv[j],
                      dbiases[static_cast<std::size_t>(h)]);
      });
    }
  });
  if (dbias != nullptr) *dbias = add(std::move(*dbias), of_pairs(std::move(dbiases), dbias->shape()));
  return {joined(dq, query_heads, piece.q.extent(0), heads.query_width()),
          joined(dk, key_heads, piece.k.extent(0), heads.key_width()),
          joined(dv, key_heads, piece.v.extent(0), heads.key_width())};
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
