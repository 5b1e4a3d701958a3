#include "engine/workloads/decoder_solution.hpp"

#include <algorithm>
#include <cmath>

#include "engine/workloads/grid_solution.hpp"

namespace shard {

namespace {

using exact::Matrix;
using exact::product;

/// One block's activations.
struct BlockTrace {
  Norm attention_norm, feed_forward_norm;
  Matrix n, q, k, v, o, f;
  std::vector<Matrix> p;  // of each sequence and head: (S, S), the softmax
  struct Expert {
    std::vector<Index> tokens;
    std::vector<Index> ranks;  // which of its token's choices this expert is
    Matrix n, g, u, h, y;
  };
  std::vector<Expert> experts;
  Matrix gates;               // (T, k)
  std::vector<Index> chosen;  // (T · k)
};

class DecoderSolution : GridSolution {
 public:
  DecoderSolution(const DecoderModel& model, const ExactProblem& problem)
      : GridSolution(model.how, model.epsilon, problem),
        m_(model),
        b_(problem.input.shape[0]),
        s_(problem.input.shape[1] / 2),
        x_(0, 0) {
    for (Index b = 0; b < b_; ++b)
      for (Index i = 0; i < 2 * s_; ++i) {
        const auto token = static_cast<Index>(problem.input.values[static_cast<std::size_t>(b * 2 * s_ + i)]);
        (i < s_ ? ids_ : labels_).push_back(token);
      }
  }

  /// Through all blocks.
  void forward() {
    x_ = rows_of(weight(embedding_name()), ids_);
    for (Index b = 0; b < m_.num_blocks; ++b) {
      BlockTrace& trace = blocks_.emplace_back(empty_trace());
      attend(b, trace);
      feed_forward(b, trace);
    }
  }

  Solution solve() {
    forward();
    Norm norm;
    const Matrix n = normed(x_, final_norm_name(), norm);
    const Matrix head = weight(m_.is_tied ? embedding_name() : head_name());
    const Matrix dz = loss_gradient(scaled(product(n, head.transposed()), m_.how.logit_scale), labels_);
    Matrix dhead = product(dz.transposed(), n);
    Matrix d = norm_backward(product(dz, head), final_norm_name(), norm);
    for (Index b = m_.num_blocks - 1; b >= 0; --b) {
      const BlockTrace& trace = blocks_[static_cast<std::size_t>(b)];
      add_to(d, feed_forward_backward(b, d, trace));
      add_to(d, attend_backward(b, d, trace));
    }
    Matrix dtable(m_.vocabulary, m_.model_dim);
    add_to_rows(dtable, ids_, d);
    if (m_.is_tied)
      add_to(dtable, dhead);
    else
      results_[head_name()] = dhead.as_floats();
    results_[embedding_name()] = dtable.as_floats();
    return std::move(results_);
  }

  const std::vector<BlockTrace>& blocks() const { return blocks_; }

 private:
  static BlockTrace empty_trace() {
    const Matrix none(0, 0);
    return {{}, {}, none, none, none, none, none, none, {}, {}, none, {}};
  }

  /// Each head turned by its token's position, forward (1) or back (-1).
  Matrix rotary(Matrix t, int direction) const {
    const Index half = m_.head_dim / 2;
    for (Index row = 0; row < t.rows; ++row)
      for (Index head = 0; head < t.columns; head += m_.head_dim)
        for (Index j = 0; j < half; ++j) {
          const double angle =
              static_cast<double>(row % s_) *
              std::pow(m_.rope_base, -2 * static_cast<double>(j) / static_cast<double>(m_.head_dim));
          const double c = std::cos(angle), s = direction * std::sin(angle);
          const double x = t.at(row, head + j), y = t.at(row, head + j + half);
          t.at(row, head + j) = grid_.rounded(static_cast<float>(x * c - y * s));
          t.at(row, head + j + half) = grid_.rounded(static_cast<float>(x * s + y * c));
        }
    return t;
  }

  /// Head `h` of the rows of sequence `b`.
  Matrix head_of(const Matrix& t, Index b, Index h) const {
    Matrix head(s_, m_.head_dim);
    for (Index i = 0; i < s_; ++i)
      for (Index c = 0; c < m_.head_dim; ++c) head.at(i, c) = t.at(b * s_ + i, h * m_.head_dim + c);
    return head;
  }
  void add_head(Matrix& t, Index b, Index h, const Matrix& head) const {
    for (Index i = 0; i < s_; ++i)
      for (Index c = 0; c < m_.head_dim; ++c) t.at(b * s_ + i, h * m_.head_dim + c) += head.at(i, c);
  }

  /// Powers 2^(s − m) of a head's scores, 0 where a query does not see a key, and their sums.
  Matrix powers(const Matrix& q, const Matrix& k, std::vector<double>& sums) const {
    Matrix z = scaled(product(q, k.transposed()), m_.how.score_scale);
    for (Index i = 0; i < s_; ++i) {
      double sum = 0;
      for (Index j = 0; j < s_; ++j) {
        const bool is_seen = j <= i && (!m_.window || j > i - *m_.window);
        z.at(i, j) = is_seen ? std::exp2(grid_.exponent(z.at(i, j))) : 0;
        sum += z.at(i, j);
      }
      sums.push_back(sum);
    }
    return z;
  }
  void attend(Index b, BlockTrace& trace) {
    trace.n = normed(x_, block_name(b, "attention_norm"), trace.attention_norm);
    trace.q = rotary(product(trace.n, weight(block_name(b, "query"))), 1);
    trace.k = rotary(product(trace.n, weight(block_name(b, "key"))), 1);
    trace.v = product(trace.n, weight(block_name(b, "value")));
    trace.o = Matrix(b_ * s_, m_.query_width());
    for (Index i = 0; i < b_; ++i)
      for (Index h = 0; h < m_.heads; ++h) {
        std::vector<double> sums;
        const Index g = h / m_.shared();
        const Matrix all = powers(head_of(trace.q, i, h), head_of(trace.k, i, g), sums);
        add_head(trace.o, i, h, rounded(divided(product(all, head_of(trace.v, i, g)), sums)));
        trace.p.push_back(rounded(divided(all, sums)));
      }
    add_to(x_, product(trace.o, weight(block_name(b, "output"))));
  }
  Matrix attend_backward(Index b, const Matrix& d, const BlockTrace& trace) {
    const Matrix dout = product(d, weight(block_name(b, "output")).transposed());
    put(block_name(b, "output"), product(trace.o.transposed(), d));
    Matrix dq(b_ * s_, m_.query_width()), dk(b_ * s_, m_.key_width()), dv = dk;
    for (Index i = 0; i < b_; ++i)
      for (Index h = 0; h < m_.heads; ++h) {
        const Index g = h / m_.shared();
        const Matrix& p = trace.p[static_cast<std::size_t>(i * m_.heads + h)];
        const Matrix d_head = head_of(dout, i, h), o = head_of(trace.o, i, h);
        Matrix ds = product(d_head, head_of(trace.v, i, g).transposed());
        for (Index r = 0; r < s_; ++r) {
          double dots = 0;
          for (Index c = 0; c < m_.head_dim; ++c) dots += d_head.at(r, c) * o.at(r, c);
          for (Index c = 0; c < s_; ++c)
            ds.at(r, c) =
                grid_.rounded(static_cast<float>(ds.at(r, c) - dots) * static_cast<float>(p.at(r, c)));
        }
        ds = scaled(std::move(ds), m_.how.score_scale);
        add_head(dq, i, h, product(ds, head_of(trace.k, i, g)));
        add_head(dk, i, g, product(ds.transposed(), head_of(trace.q, i, h)));
        add_head(dv, i, g, product(p.transposed(), d_head));
      }
    dq = rotary(std::move(dq), -1);
    dk = rotary(std::move(dk), -1);
    Matrix dn(b_ * s_, m_.model_dim);
    for (const auto& [name, dt] : {std::pair("query", &dq), std::pair("key", &dk), std::pair("value", &dv)}) {
      put(block_name(b, name), product(trace.n.transposed(), *dt));
      add_to(dn, product(*dt, weight(block_name(b, name)).transposed()));
    }
    return norm_backward(dn, block_name(b, "attention_norm"), trace.attention_norm);
  }

  static float sigma(float z) { return 1 / (1 + std::exp(-z)); }
  double silu(double z) const { return grid_.rounded(static_cast<float>(z) * sigma(static_cast<float>(z))); }

  Matrix expert(Index b, Index e, BlockTrace::Expert& t) const {
    t.g = product(t.n, weight(feed_forward_name(m_, b, e, "gate")));
    t.u = product(t.n, weight(feed_forward_name(m_, b, e, "up")));
    t.h = t.u;
    for (std::size_t i = 0; i < t.h.values.size(); ++i)
      t.h.values[i] =
          grid_.rounded(static_cast<float>(silu(t.g.values[i])) * static_cast<float>(t.u.values[i]));
    return product(t.h, weight(feed_forward_name(m_, b, e, "down")));
  }
  Matrix expert_backward(Index b, Index e, const Matrix& dy, const BlockTrace::Expert& t) {
    put(feed_forward_name(m_, b, e, "down"), product(t.h.transposed(), dy));
    const Matrix dh = product(dy, weight(feed_forward_name(m_, b, e, "down")).transposed());
    Matrix dg = dh, du = dh;
    for (std::size_t i = 0; i < dh.values.size(); ++i) {
      const auto z = static_cast<float>(t.g.values[i]), d = static_cast<float>(dh.values[i]);
      const float slope = sigma(z) * (1 + z * sigma(-z));
      dg.values[i] = grid_.rounded(static_cast<float>(t.u.values[i]) * d * slope);
      du.values[i] = grid_.rounded(static_cast<float>(silu(t.g.values[i])) * d);
    }
    put(feed_forward_name(m_, b, e, "gate"), product(t.n.transposed(), dg));
    put(feed_forward_name(m_, b, e, "up"), product(t.n.transposed(), du));
    Matrix dn = product(dg, weight(feed_forward_name(m_, b, e, "gate")).transposed());
    add_to(dn, product(du, weight(feed_forward_name(m_, b, e, "up")).transposed()));
    return dn;
  }

  void feed_forward(Index b, BlockTrace& trace) {
    trace.f = normed(x_, block_name(b, "feed_forward_norm"), trace.feed_forward_norm);
    const Matrix none(0, 0);
    if (!m_.is_mixture()) {
      trace.experts.push_back({{}, {}, trace.f, none, none, none, none});
      add_to(x_, expert(b, 0, trace.experts[0]));
      return;
    }
    choose(b, trace);
    for (Index e = 0; e < m_.experts; ++e) {
      BlockTrace::Expert t{{}, {}, none, none, none, none, none};
      for (std::size_t c = 0; c < trace.chosen.size(); ++c)
        if (trace.chosen[c] == e) {
          t.tokens.push_back(static_cast<Index>(c) / m_.top_k);
          t.ranks.push_back(static_cast<Index>(c) % m_.top_k);
        }
      t.n = rows_of(trace.f, t.tokens);
      t.y = expert(b, e, t);
      for (std::size_t i = 0; i < t.tokens.size(); ++i)
        for (Index c = 0; c < m_.model_dim; ++c)
          x_.at(t.tokens[i], c) += trace.gates.at(t.tokens[i], t.ranks[i]) * t.y.at(static_cast<Index>(i), c);
      trace.experts.push_back(std::move(t));
    }
  }

  void choose(Index b, BlockTrace& trace) const {
    const Matrix logits = product(trace.f, weight(block_name(b, "router")));
    trace.gates = Matrix(logits.rows, m_.top_k);
    for (Index t = 0; t < logits.rows; ++t) {
      std::vector<Index> order(static_cast<std::size_t>(m_.experts));
      for (Index e = 0; e < m_.experts; ++e) order[static_cast<std::size_t>(e)] = e;
      std::ranges::stable_sort(order, [&](Index x, Index y) {
        return grid_.exponent(logits.at(t, x)) > grid_.exponent(logits.at(t, y));
      });
      double sum = 0;
      for (Index r = 0; r < m_.top_k; ++r)
        sum += std::exp2(grid_.exponent(logits.at(t, order[static_cast<std::size_t>(r)])));
      for (Index r = 0; r < m_.top_k; ++r) {
        const Index e = order[static_cast<std::size_t>(r)];
        trace.chosen.push_back(e);
        trace.gates.at(t, r) = grid_.rounded(static_cast<float>(std::exp2(grid_.exponent(logits.at(t, e)))) /
                                             static_cast<float>(sum));
      }
    }
  }

  Matrix feed_forward_backward(Index b, const Matrix& d, const BlockTrace& trace) {
    Matrix dn(b_ * s_, m_.model_dim);
    if (m_.is_mixture()) {
      Matrix dgates = trace.gates;
      for (Index e = 0; e < m_.experts; ++e) expert_of_tokens_backward(b, e, d, trace, dgates, dn);
      Matrix dlogits(b_ * s_, m_.experts);
      for (Index t = 0; t < dlogits.rows; ++t) {
        float dots = 0;
        for (Index r = 0; r < m_.top_k; ++r)
          dots += static_cast<float>(trace.gates.at(t, r)) * static_cast<float>(dgates.at(t, r));
        for (Index r = 0; r < m_.top_k; ++r)
          dlogits.at(t, trace.chosen[static_cast<std::size_t>(t * m_.top_k + r)]) = grid_.rounded(
              static_cast<float>(trace.gates.at(t, r)) * (static_cast<float>(dgates.at(t, r)) - dots));
      }
      put(block_name(b, "router"), product(trace.f.transposed(), dlogits));
      add_to(dn, product(dlogits, weight(block_name(b, "router")).transposed()));
    } else {
      dn = expert_backward(b, 0, d, trace.experts[0]);
    }
    return norm_backward(dn, block_name(b, "feed_forward_norm"), trace.feed_forward_norm);
  }
  void expert_of_tokens_backward(Index b, Index e, const Matrix& d, const BlockTrace& trace, Matrix& dgates,
                                 Matrix& dn) {
    const BlockTrace::Expert& t = trace.experts[static_cast<std::size_t>(e)];
    Matrix dy = rows_of(d, t.tokens);
    for (Index i = 0; i < dy.rows; ++i) {
      const Index token = t.tokens[static_cast<std::size_t>(i)], rank = t.ranks[static_cast<std::size_t>(i)];
      double dots = 0;
      for (Index c = 0; c < dy.columns; ++c) {
        dots += dy.at(i, c) * t.y.at(i, c);
        dy.at(i, c) =
            grid_.rounded(static_cast<float>(dy.at(i, c)) * static_cast<float>(trace.gates.at(token, rank)));
      }
      dgates.at(token, rank) = dots;
    }
    const Matrix of_tokens = expert_backward(b, e, dy, t);
    for (Index i = 0; i < dy.rows; ++i)
      for (Index c = 0; c < dy.columns; ++c)
        dn.at(t.tokens[static_cast<std::size_t>(i)], c) += of_tokens.at(i, c);
  }

  DecoderModel m_;
  Index b_, s_;                      // sequences, and their length
  std::vector<Index> ids_, labels_;  // (B · S)
  Matrix x_;                         // (B · S, D)   the residual stream
  std::vector<BlockTrace> blocks_;
};

}  // namespace

Solution solve_decoder(const DecoderModel& model, const ExactProblem& problem) {
  return DecoderSolution(model, problem).solve();
}

std::vector<std::vector<Index>> chosen_experts(const DecoderModel& model, const ExactProblem& problem,
                                               int devices) {
  DecoderSolution solution(model, problem);
  solution.forward();
  const Index sequences = problem.input.shape[0], length = problem.input.shape[1] / 2;
  std::vector<std::vector<Index>> counts;
  for (int device = 0; device < devices; ++device) {
    const Range mine = part(sequences, devices, device);
    std::vector<Index> of_device;
    for (const BlockTrace& trace : solution.blocks())
      for (Index e = 0; e < model.experts; ++e)
        of_device.push_back(std::count(trace.chosen.begin() + mine.begin * length * model.top_k,
                                       trace.chosen.begin() + mine.end * length * model.top_k, e));
    counts.push_back(std::move(of_device));
  }
  return counts;
}

}  // namespace shard
