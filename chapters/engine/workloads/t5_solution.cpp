#include "engine/workloads/t5_solution.hpp"

#include <algorithm>
#include <cmath>

#include "engine/workloads/decoder_model.hpp"
#include "engine/workloads/grid_solution.hpp"

namespace shard {

namespace {

using exact::Matrix;
using exact::product;

/// One attention's activations.
struct AttentionTrace {
  Norm norm{};
  Matrix n{0, 0}, q{0, 0}, k{0, 0}, v{0, 0}, o{0, 0};
  std::vector<Matrix> p;  // of each sequence and head: the softmax
};
struct T5BlockTrace {
  AttentionTrace self, cross;
  Norm norm{};
  Matrix f{0, 0}, g{0, 0}, u{0, 0}, h{0, 0};
};
struct StackTrace {
  Side side;
  Index length = 0;  // of each sequence
  std::vector<Index> ids{};
  std::vector<T5BlockTrace> blocks{};
  Norm norm{};
  Matrix n{0, 0}, dn{0, 0};  // what it returns, and the gradient
  Matrix dbias{0, 0};        // of its table
};

class T5Solution : GridSolution {
 public:
  T5Solution(const T5Model& model, const ExactProblem& problem)
      : GridSolution(model.how, model.epsilon, problem), m_(model), sequences_(problem.input.shape[0]) {
    auto number = problem.input.values.begin();
    auto take = [&](Index count, std::vector<Index>& into) {
      for (Index i = 0; i < count; ++i) into.push_back(static_cast<Index>(*number++));
    };
    for (Index b = 0; b < sequences_; ++b) {
      encoder_.length = static_cast<Index>(*number++);
      decoder_.length = (problem.input.shape[1] - 1 - encoder_.length) / 2;
      take(encoder_.length, encoder_.ids);
      take(decoder_.length, decoder_.ids);
      take(decoder_.length, labels_);
    }
  }

  Solution solve() {
    forward(encoder_);
    forward(decoder_);
    const Matrix head = weight(m_.is_tied ? embedding_name() : head_name());
    const Matrix dz =
        loss_gradient(scaled(product(decoder_.n, head.transposed()), m_.how.logit_scale), labels_);
    Matrix dhead = product(dz.transposed(), decoder_.n);
    decoder_.dn = product(dz, head);
    encoder_.dn = Matrix(encoder_.n.rows, encoder_.n.columns);
    Matrix dtable(m_.vocabulary, m_.model_dim);
    for (StackTrace* stack : {&decoder_, &encoder_}) add_to_rows(dtable, stack->ids, backward(*stack));
    if (m_.is_tied)
      add_to(dtable, dhead);
    else
      put(head_name(), dhead);
    put(embedding_name(), dtable);
    return std::move(results_);
  }

 private:
  void forward(StackTrace& stack) {
    Matrix x = rows_of(weight(embedding_name()), stack.ids);
    for (Index b = 0; b < m_.blocks(stack.side); ++b) {
      T5BlockTrace& trace = stack.blocks.emplace_back();
      add_to(x, attend(t5_name(stack.side, b, "self_"), x, stack, stack, trace.self));
      if (stack.side == Side::decoder)
        add_to(x, attend(t5_name(stack.side, b, "cross_"), x, stack, encoder_, trace.cross));
      add_to(x, think(stack.side, b, x, trace));
    }
    stack.n = normed(x, t5_name(stack.side, "final_norm"), stack.norm);
  }
  /// The gradient of what the embedding gave.
  Matrix backward(StackTrace& stack) {
    Matrix d = norm_backward(stack.dn, t5_name(stack.side, "final_norm"), stack.norm);
    stack.dbias = Matrix(m_.buckets, m_.heads);
    for (Index b = m_.blocks(stack.side) - 1; b >= 0; --b) {
      T5BlockTrace& trace = stack.blocks[static_cast<std::size_t>(b)];
      add_to(d, think_backward(stack.side, b, d, trace));
      if (stack.side == Side::decoder)
        add_to(d, attend_backward(t5_name(stack.side, b, "cross_"), d, stack, encoder_, trace.cross));
      add_to(d, attend_backward(t5_name(stack.side, b, "self_"), d, stack, stack, trace.self));
    }
    put(t5_name(stack.side, "position_bias"), stack.dbias);
    return d;
  }

  /// The bucket of a key that is so far behind a query, or before it. The last distances of the buckets from
  /// the middle on grow by one factor.
  Index bucket(Side side, Index offset) const {
    const Index buckets = side == Side::encoder ? m_.buckets / 2 : m_.buckets, exact = buckets / 2;
    const Index first = side == Side::encoder && offset > 0 ? buckets : 0;
    const Index distance = side == Side::encoder ? std::abs(offset) : std::max<Index>(-offset, 0);
    Index found = std::min(distance, exact);
    const double factor = std::pow(static_cast<double>(m_.max_distance) / static_cast<double>(exact),
                                   1 / static_cast<double>(buckets - exact));
    for (double begin = static_cast<double>(exact) * factor;
         found >= exact && found + 1 < buckets && static_cast<double>(distance) > begin * (1 - 1e-6);
         begin *= factor)
      ++found;
    return first + found;
  }

  /// Head `h` of the rows of a sequence, which has `length` of them.
  Matrix head_of(const Matrix& t, Index length, Index sequence, Index h) const {
    Matrix head(length, m_.head_dim);
    for (Index i = 0; i < length; ++i)
      for (Index c = 0; c < m_.head_dim; ++c)
        head.at(i, c) = t.at(sequence * length + i, h * m_.head_dim + c);
    return head;
  }
  void add_head(Matrix& t, Index sequence, Index h, const Matrix& head) const {
    for (Index i = 0; i < head.rows; ++i)
      for (Index c = 0; c < m_.head_dim; ++c)
        t.at(sequence * head.rows + i, h * m_.head_dim + c) += head.at(i, c);
  }

  /// Powers 2^(score) of a head, 0 where a query does not see a key, and their sums.
  Matrix powers(const Matrix& q, const Matrix& k, const StackTrace& stack, bool is_self, Index h,
                std::vector<double>& sums) const {
    const Matrix table = weight(t5_name(stack.side, "position_bias"));
    Matrix z = scaled(product(q, k.transposed()), m_.how.score_scale);
    for (Index i = 0; i < z.rows; ++i) {
      double sum = 0;
      for (Index j = 0; j < z.columns; ++j) {
        const double bias = is_self ? table.at(bucket(stack.side, j - i), h) : 0;
        exact::require_exact(std::abs(z.at(i, j)) + std::abs(bias),
                             std::min(exact::unit_of(z.at(i, j)), exact::unit_of(bias)));
        const bool is_seen = !is_self || stack.side == Side::encoder || j <= i;
        z.at(i, j) = is_seen ? std::exp2(grid_.exponent(z.at(i, j) + bias)) : 0;
        sum += z.at(i, j);
      }
      sums.push_back(sum);
    }
    return z;
  }

  /// `of_keys`: the stack whose tokens the queries see.
  Matrix attend(const std::string& name, const Matrix& x, const StackTrace& stack, const StackTrace& of_keys,
                AttentionTrace& trace) const {
    const bool is_self = &stack == &of_keys;
    trace.n = normed(x, name + "norm", trace.norm);
    trace.q = product(trace.n, weight(name + "query"));
    trace.k = product(is_self ? trace.n : of_keys.n, weight(name + "key"));
    trace.v = product(is_self ? trace.n : of_keys.n, weight(name + "value"));
    trace.o = Matrix(x.rows, m_.width());
    for (Index b = 0; b < sequences_; ++b)
      for (Index h = 0; h < m_.heads; ++h) {
        std::vector<double> sums;
        const Matrix all = powers(head_of(trace.q, stack.length, b, h),
                                  head_of(trace.k, of_keys.length, b, h), stack, is_self, h, sums);
        add_head(trace.o, b, h, rounded(divided(product(all, head_of(trace.v, of_keys.length, b, h)), sums)));
        trace.p.push_back(rounded(divided(all, sums)));
      }
    return product(trace.o, weight(name + "output"));
  }
  Matrix attend_backward(const std::string& name, const Matrix& d, StackTrace& stack, StackTrace& of_keys,
                         const AttentionTrace& trace) {
    const bool is_self = &stack == &of_keys;
    const Matrix dout = product(d, weight(name + "output").transposed());
    put(name + "output", product(trace.o.transposed(), d));
    Matrix dq(d.rows, m_.width()), dk(trace.k.rows, m_.width()), dv = dk;
    for (Index b = 0; b < sequences_; ++b)
      for (Index h = 0; h < m_.heads; ++h) {
        const Matrix& p = trace.p[static_cast<std::size_t>(b * m_.heads + h)];
        const Matrix d_head = head_of(dout, stack.length, b, h), o = head_of(trace.o, stack.length, b, h);
        Matrix ds = product(d_head, head_of(trace.v, of_keys.length, b, h).transposed());
        for (Index i = 0; i < ds.rows; ++i) {
          double dots = 0;
          for (Index c = 0; c < m_.head_dim; ++c) dots += d_head.at(i, c) * o.at(i, c);
          for (Index j = 0; j < ds.columns; ++j) {
            ds.at(i, j) =
                grid_.rounded(static_cast<float>(ds.at(i, j) - dots) * static_cast<float>(p.at(i, j)));
            if (is_self) stack.dbias.at(bucket(stack.side, j - i), h) += ds.at(i, j);
          }
        }
        ds = scaled(std::move(ds), m_.how.score_scale);
        add_head(dq, b, h, product(ds, head_of(trace.k, of_keys.length, b, h)));
        add_head(dk, b, h, product(ds.transposed(), head_of(trace.q, stack.length, b, h)));
        add_head(dv, b, h, product(p.transposed(), d_head));
      }
    return projections_backward(name, rounded(std::move(dq)), rounded(std::move(dk)), dv, trace,
                                is_self ? nullptr : &of_keys);
  }
  /// Of queries, keys and values, to what the norm has read. In cross attention, adds to the source's
  /// gradient.
  Matrix projections_backward(const std::string& name, const Matrix& dq, const Matrix& dk, const Matrix& dv,
                              const AttentionTrace& trace, StackTrace* source) {
    const Matrix& of_keys = source != nullptr ? source->n : trace.n;
    put(name + "query", product(trace.n.transposed(), dq));
    put(name + "key", product(of_keys.transposed(), dk));
    put(name + "value", product(of_keys.transposed(), dv));
    Matrix dn = product(dq, weight(name + "query").transposed());
    Matrix& dkeys = source != nullptr ? source->dn : dn;
    add_to(dkeys, product(dk, weight(name + "key").transposed()));
    add_to(dkeys, product(dv, weight(name + "value").transposed()));
    return norm_backward(dn, name + "norm", trace.norm);
  }

  /// GELU in its form with tanh, as z σ(2u), in float32.
  static float sigma(float z) { return 1 / (1 + std::exp(-z)); }
  static float inner(float z) { return 1.5957691216057308F * (z + 0.044715F * z * z * z); }
  double gelu(double value) const {
    const auto z = static_cast<float>(value);
    return grid_.rounded(z * sigma(inner(z)));
  }
  static float gelu_slope(float z) {
    const float share = sigma(inner(z));
    return share + z * share * sigma(-inner(z)) * 1.5957691216057308F * (1 + 3 * 0.044715F * z * z);
  }

  Matrix think(Side side, Index b, const Matrix& x, T5BlockTrace& trace) const {
    trace.f = normed(x, t5_name(side, b, "feed_forward_norm"), trace.norm);
    trace.u = product(trace.f, weight(t5_name(side, b, "up")));
    if (m_.has_gate()) trace.g = product(trace.f, weight(t5_name(side, b, "gate")));
    trace.h = trace.u;
    for (std::size_t i = 0; i < trace.h.values.size(); ++i)
      trace.h.values[i] = m_.has_gate()
                              ? grid_.rounded(static_cast<float>(gelu(trace.g.values[i]) * trace.u.values[i]))
                              : std::max(trace.u.values[i], 0.0);
    return product(trace.h, weight(t5_name(side, b, "down")));
  }
  Matrix think_backward(Side side, Index b, const Matrix& d, const T5BlockTrace& trace) {
    put(t5_name(side, b, "down"), product(trace.h.transposed(), d));
    const Matrix dh = product(d, weight(t5_name(side, b, "down")).transposed());
    Matrix du = dh, dg = dh;
    for (std::size_t i = 0; i < dh.values.size(); ++i) {
      const double u = trace.u.values[i], slope = dh.values[i];
      if (!m_.has_gate()) {
        du.values[i] = u > 0 ? slope : 0;
        continue;
      }
      const double g = trace.g.values[i];
      du.values[i] = grid_.rounded(static_cast<float>(gelu(g) * slope));
      dg.values[i] = grid_.rounded(static_cast<float>(u * slope) * gelu_slope(static_cast<float>(g)));
    }
    put(t5_name(side, b, "up"), product(trace.f.transposed(), du));
    Matrix dn = product(du, weight(t5_name(side, b, "up")).transposed());
    if (m_.has_gate()) {
      put(t5_name(side, b, "gate"), product(trace.f.transposed(), dg));
      add_to(dn, product(dg, weight(t5_name(side, b, "gate")).transposed()));
    }
    return norm_backward(dn, t5_name(side, b, "feed_forward_norm"), trace.norm);
  }

  T5Model m_;
  Index sequences_;
  StackTrace encoder_{.side = Side::encoder}, decoder_{.side = Side::decoder};
  std::vector<Index> labels_;  // (B · S)
};

}  // namespace

Solution solve_t5(const T5Model& model, const ExactProblem& problem) {
  return T5Solution(model, problem).solve();
}

}  // namespace shard
