#pragma once

/// What attention computes on one device: o = softmax(q kᵀ / √d) v for each head of each sequence, causal: a
/// query sees the keys at its own position and before. Query heads may share a key-value head (grouped-query
/// attention, Ainslie et al. 2023). Sequences and heads do not see one another.

#include <cmath>

#include "layer.hpp"

namespace shard::layer_cuts {

/// Which sequences, positions and heads a device computes.
struct HeadsHere {
  Index sequences = 0, queries = 0,
        keys = 0;                        ///< rows of q: sequences · queries; of k and v: sequences · keys
  Index first_query = 0, first_key = 0;  ///< positions in the sequence
  Index head_dim = 1;
  std::vector<Index> kv_head;  ///< for each query head here, its key-value head here
};

class AttentionLayer : public Layer {
 public:
  using Layer::Layer;

 protected:
  /// q (sequences · queries, heads · d), k and v (sequences · keys, kv heads · d); the result is like q.
  Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, HeadsHere here) {
    here_ = std::move(here);
    kept_.clear();
    std::vector<Tensor> rows;
    for (Index s = 0; s < here_.sequences; ++s) {
      std::vector<Tensor> heads;
      for (std::size_t h = 0; h < here_.kv_head.size(); ++h)
        heads.push_back(attend_head({head_of(q, s, here_.queries, static_cast<Index>(h)),
                                     head_of(k, s, here_.keys, here_.kv_head[h]),
                                     head_of(v, s, here_.keys, here_.kv_head[h]),
                                     {}}));
      rows.push_back(joined(heads, 1, {here_.queries, 0}));
    }
    return joined(rows, 0, {0, q.extent(1)});
  }
  /// The gradients of q, k and v. A key-value head has those of all query heads that share it.
  struct HeadGradients {
    Tensor q, k, v;
  };
  HeadGradients attend_backward(const Tensor& dout, Index kv_heads) {
    std::vector<Tensor> dq, dk, dv;
    for (Index s = 0; s < here_.sequences; ++s) {
      std::vector<Tensor> q, k, v;
      for (Index g = 0; g < kv_heads; ++g)
        k.emplace_back(Shape{here_.keys, here_.head_dim}), v.emplace_back(Shape{here_.keys, here_.head_dim});
      for (std::size_t h = 0; h < here_.kv_head.size(); ++h) {
        const auto g = static_cast<std::size_t>(here_.kv_head[h]);
        const auto head = static_cast<Index>(h);
        HeadGradients d = head_backward(head_of(dout, s, here_.queries, head), kept_of(s, head));
        q.push_back(std::move(d.q));
        k[g] = add(std::move(k[g]), d.k);
        v[g] = add(std::move(v[g]), d.v);
      }
      dq.push_back(joined(q, 1, {here_.queries, 0}));
      dk.push_back(joined(k, 1, {here_.keys, 0}));
      dv.push_back(joined(v, 1, {here_.keys, 0}));
    }
    const Index width = kv_heads * here_.head_dim;
    return {joined(dq, 0, {0, dout.extent(1)}), joined(dk, 0, {0, width}), joined(dv, 0, {0, width})};
  }

 private:
  /// One head of one sequence: q (queries, d), k and v (keys, d), and p (queries, keys), the softmax.
  struct Head {
    Tensor q, k, v, p;
  };

  Tensor attend_head(Head head) {
    Tensor scores = scale(matmul(head.q, transposed(head.k)), scale_of_scores());  // (queries, keys)
    // From the first key to the one at the query's own position.
    scores = keep_band(std::move(scores), -here_.queries, here_.first_query - here_.first_key);
    const Tensor largest = row_max(scores);                            // (queries)
    Tensor powers = exponentials(std::move(scores), largest, base());  // (queries, keys)
    const Tensor sums = row_sums(powers);                              // (queries)
    Tensor out = rounded(divide_rows(matmul(powers, head.v), sums));   // (queries, d)
    head.p = rounded(divide_rows(std::move(powers), sums));            // (queries, keys)
    kept_.push_back(std::move(head));
    return out;
  }
  /// dv = pᵀ do, ds = p (dp − Σ p dp) with dp = do vᵀ, dq = ds k / √d, dk = dsᵀ q / √d.
  HeadGradients head_backward(const Tensor& d, const Head& head) const {
    const Tensor ds = rounded(softmax_backward(matmul(d, transposed(head.v)), head.p));  // (queries, keys)
    return {scale(matmul(ds, head.k), scale_of_scores()),
            scale(matmul(transposed(ds), head.q), scale_of_scores()), matmul(transposed(head.p), d)};
  }

  float scale_of_scores() const { return 1 / std::sqrt(static_cast<float>(here_.head_dim)); }
  const Head& kept_of(Index sequence, Index head) const {
    return kept_[static_cast<std::size_t>(sequence) * here_.kv_head.size() + static_cast<std::size_t>(head)];
  }
  Tensor head_of(const Tensor& t, Index sequence, Index length, Index head) const {
    return slice(slice(t, 0, sequence * length, (sequence + 1) * length), 1, head * here_.head_dim,
                 (head + 1) * here_.head_dim);
  }
  static Tensor joined(const std::vector<Tensor>& parts, int axis, Shape of_none) {
    if (parts.empty()) return Tensor(std::move(of_none));
    std::vector<const Tensor*> all;
    for (const Tensor& part : parts) all.push_back(&part);
    return concatenate(all, axis);
  }

  HeadsHere here_;
  std::vector<Head> kept_;
};

}  // namespace shard::layer_cuts
