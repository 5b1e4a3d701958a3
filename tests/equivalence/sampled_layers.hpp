#pragma once

/// The layers of the float64 references with samples: forward and backward, from the definitions, with the
/// roundings of float32 in each place.

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "engine/layers/tokens.hpp"
#include "tests/equivalence/sampled_gates.hpp"

namespace shard::testing {

/// Heads of attention: a softmax over all keys that a query sees.
template <class Number>
struct SampledHeads {
  Index sequences, queries, keys;  // queries and keys of each sequence
  Index heads, head_dim;
  Index shared = 1;                       // neighbours that share a key-value head
  std::optional<Number> scale = {};       // of scores
  bool is_causal = true;                  // a query sees the keys at its position and before
  std::optional<Index> window = {};       // the most of them
  bool may_come_in_pieces = false;        // keys, from several devices
  const Numbers<Number>* bias = nullptr;  // (queries · keys, heads)

  /// The keys that query i sees.
  Range seen(Index i) const {
    return {window ? std::max<Index>(i - *window + 1, 0) : 0, is_causal ? i + 1 : keys};
  }
  /// The queries that see key j.
  Range seen_by(Index j) const {
    return {is_causal ? j : 0, window ? std::min(j + *window, queries) : queries};
  }
};

/// Parameters, their gradients, and layers that work on them.
template <int Samples>
class SampledLayers {
 public:
  using Number = Sampled<Samples>;
  using Matrix = Numbers<Number>;
  using Results = std::map<std::string, Matrix>;

  Matrix& weight(const std::string& name) { return w_.at(name); }
  /// Differences that must not change their sign: choices hang on them.
  const std::vector<Number>& margins() const { return margins_; }

  void sgd_step(const Results& gradients, double rate) {
    for (auto& [name, w] : w_)
      for (std::size_t i = 0; i < w.all.size(); ++i)
        w.all[i] = round_(w.all[i] - round_(Number(rate) * gradients.at(name).all[i], 2));
  }

 protected:
  using Heads = SampledHeads<Number>;
  using Addends = Sums<Number>;

  SampledLayers(const std::map<std::string, HostTensor>& weights, Index model_dim, float epsilon)
      : mean_(round_(Number(1 / static_cast<double>(model_dim)))), epsilon_(epsilon) {
    for (const auto& [name, w] : weights) w_.emplace(name, Matrix(w));
  }

  void put(const std::string& name, Matrix gradient) { results_.emplace(name, std::move(gradient)); }

  struct Norm {
    Matrix x_hat;
    std::vector<Number> r;
  };
  Matrix norm(const Matrix& x, const std::string& name, Norm& kept) {
    const Matrix& w = w_.at(name);
    kept = {Matrix(x.rows, x.columns), {}};
    Matrix y(x.rows, x.columns);
    for (Index t = 0; t < x.rows; ++t) {
      const Number argument = round_(round_(round_.dot_rows(x, t, x, t) * mean_) + Number(double{epsilon_}));
      const Number r = round_(argument.mapped([](double a) { return 1 / std::sqrt(a); }), round_.of_root);
      kept.r.push_back(r);
      for (Index c = 0; c < x.columns; ++c) {
        kept.x_hat.at(t, c) = round_(x.at(t, c) * r);
        y.at(t, c) = round_(kept.x_hat.at(t, c) * w.at(0, c));
      }
    }
    return y;
  }
  Matrix norm_backward(const Matrix& dy, const std::string& name, const Norm& kept) {
    const Matrix& w = w_.at(name);
    Matrix dw(1, dy.columns), dx(dy.rows, dy.columns);
    for (Index c = 0; c < dy.columns; ++c)
      dw.at(0, c) = round_.dot(
          {0, dy.rows}, [&](Index t) -> auto& { return dy.at(t, c); },
          [&](Index t) -> auto& { return kept.x_hat.at(t, c); });
    Matrix d = dy;
    for (Index t = 0; t < dy.rows; ++t) {
      for (Index c = 0; c < dy.columns; ++c) d.at(t, c) = round_(dy.at(t, c) * w.at(0, c));
      const Number mean = round_(mean_ * round_.dot_rows(d, t, kept.x_hat, t));
      for (Index c = 0; c < dy.columns; ++c)
        dx.at(t, c) = round_(round_(d.at(t, c) - round_(kept.x_hat.at(t, c) * mean)) *
                             kept.r[static_cast<std::size_t>(t)]);
    }
    put(name, std::move(dw));
    return dx;
  }

  /// The softmax of z, in its memory. Returns log Σ exp z. Exponents are differences from the largest. If
  /// keys come in `pieces` pieces, powers are multiplied again for each later piece.
  Number softmax(std::vector<Number>& z, double pieces) {
    const double largest = std::ranges::max_element(z, {}, &Number::value)->value();
    const double smallest = std::ranges::min_element(z, {}, &Number::value)->value();
    const double units =
        Roundings<Number>::of_exp + (largest - smallest) + (pieces - 1) * (Roundings<Number>::of_exp + 1);
    Number sum;
    for (Number& power : z) {
      power = round_(power.mapped([largest](double s) { return std::exp(s - largest); }), units);
      sum = sum + power;
    }
    sum = round_.of_sum(sum, static_cast<double>(z.size()), sum.value());
    for (Number& power : z) power = round_(power / sum, Roundings<Number>::of_division);
    return sum.mapped([largest](double s) { return largest + std::log(s); });
  }

  struct Attention {
    Matrix q, k, v, o;
    std::vector<Matrix> p;  // of each sequence and head: (queries, keys)
  };
  /// o, of q, k and v.
  void attend(const Heads& all, Attention& t) {
    t.o = Matrix(t.q.rows, t.q.columns);
    t.p.clear();
    for (Index b = 0; b < all.sequences; ++b)
      for (Index h = 0; h < all.heads; ++h) t.p.push_back(attend_head(all, b, h, t));
  }
  struct AttentionGradients {
    Matrix dq, dk, dv;
  };
  /// `dbias`: what is added to the gradient of the bias, over all sequences.
  AttentionGradients attend_backward(const Heads& all, const Matrix& dout, const Attention& t,
                                     Addends* dbias = nullptr) {
    AttentionGradients d{Matrix(t.q.rows, t.q.columns), Matrix(t.k.rows, t.k.columns),
                         Matrix(t.k.rows, t.k.columns)};
    for (Index b = 0; b < all.sequences; ++b)
      for (Index h = 0; h < all.heads; ++h) head_backward(all, b, h, dout, t, d, dbias);
    return d;
  }

  struct FeedForward {
    Matrix g, u, h;
  };
  /// name("gate"), name("up") and name("down") are its weights.
  template <class Name>
  Matrix feed_forward(const Matrix& n, const Name& name, Hidden hidden, FeedForward& t) {
    t.u = round_.product(n, w_.at(name("up")));
    if (hidden != Hidden::relu) t.g = round_.product(n, w_.at(name("gate")));
    t.h = t.u;
    for (std::size_t i = 0; i < t.h.all.size(); ++i)
      t.h.all[i] = hidden == Hidden::relu
                       ? relu(t.u.all[i])
                       : round_(activation(t.g.all[i], gate_of(hidden), round_) * t.u.all[i]);
    return round_.product(t.h, w_.at(name("down")));
  }
  template <class Name>
  Matrix feed_forward_backward(const Matrix& dy, const Matrix& n, const Name& name, Hidden hidden,
                               const FeedForward& t) {
    put(name("down"), round_.product(t.h.transposed(), dy));
    const Matrix dh = round_.product(dy, w_.at(name("down")).transposed());
    Matrix du = dh, dg = dh;
    for (std::size_t i = 0; i < dh.all.size(); ++i) {
      if (hidden == Hidden::relu) {
        if (t.u.all[i].value() <= 0) du.all[i] = Number(0);
        continue;
      }
      dg.all[i] = round_(round_(dh.all[i] * t.u.all[i]) * slope(t.g.all[i], gate_of(hidden), round_));
      du.all[i] = round_(dh.all[i] * activation(t.g.all[i], gate_of(hidden), round_));
    }
    put(name("up"), round_.product(n.transposed(), du));
    Addends dn(n.rows, n.columns);
    dn.add_product(du, w_.at(name("up")).transposed());
    if (hidden != Hidden::relu) {
      put(name("gate"), round_.product(n.transposed(), dg));
      dn.add_product(dg, w_.at(name("gate")).transposed());
    }
    return round_.of(dn);
  }

  /// The losses, (T, 1), of what the head reads, (T, D). `scale`: of logits.
  Matrix losses(const Matrix& n, const Matrix& head, const std::optional<Number>& scale,
                const std::vector<Index>& labels) {
    p_ = round_.product(n, head.transposed());
    Matrix all(n.rows, 1);
    for (Index t = 0; t < n.rows; ++t) {
      std::vector<Number> row(p_.all.begin() + t * p_.columns, p_.all.begin() + (t + 1) * p_.columns);
      for (Number& z : row)
        if (scale) z = round_(z * *scale);
      const Index label = labels[static_cast<std::size_t>(t)];
      const Number of_label = label == Tokens::no_label ? Number() : row[static_cast<std::size_t>(label)];
      const Number log_of_sum = softmax(row, 1);
      if (label != Tokens::no_label) all.at(t, 0) = round_(log_of_sum - of_label);
      std::ranges::copy(row, p_.all.begin() + t * p_.columns);
    }
    return all;
  }
  /// The gradient of the product with the head, (T, V), after `losses`.
  Matrix losses_backward(const HostTensor& dlosses, const std::optional<Number>& scale,
                         const std::vector<Index>& labels) {
    Matrix dz = p_;
    for (Index t = 0; t < dz.rows; ++t) {
      const Index label = labels[static_cast<std::size_t>(t)];
      const bool is_labelled = label != Tokens::no_label;
      if (is_labelled) dz.at(t, label) = round_(dz.at(t, label) - Number(1));
      const double dloss = is_labelled ? dlosses.values[static_cast<std::size_t>(t)] : 0;
      for (Index v = 0; v < dz.columns; ++v) {
        dz.at(t, v) = round_(dz.at(t, v) * Number(dloss));
        if (scale) dz.at(t, v) = round_(dz.at(t, v) * *scale);
      }
    }
    return dz;
  }

  /// Adds each row to that of its token.
  static void add_rows(Addends& table, const std::vector<Index>& ids, const Matrix& rows) {
    for (Index t = 0; t < rows.rows; ++t)
      for (Index c = 0; c < rows.columns; ++c) table.add(ids[static_cast<std::size_t>(t)], c, rows.at(t, c));
  }

  Roundings<Number> round_;
  Number mean_;  // 1/D
  float epsilon_;
  std::map<std::string, Matrix> w_;
  std::vector<Number> margins_;
  Results results_;

 private:
  /// Head h of sequence b: its part of o, and its probabilities.
  Matrix attend_head(const Heads& all, Index b, Index h, Attention& t) {
    const Index q = h * all.head_dim, k = h / all.shared * all.head_dim;  // the first columns
    const Index first_q = b * all.queries, first_k = b * all.keys;        // the first rows
    Matrix p(all.queries, all.keys);
    for (Index i = 0; i < all.queries; ++i) {
      const Range keys = all.seen(i);
      std::vector<Number> z;
      for (Index j = keys.begin; j < keys.end; ++j) {
        z.push_back(round_.dot(
            {0, all.head_dim}, [&](Index c) -> auto& { return t.q.at(first_q + i, q + c); },
            [&](Index c) -> auto& { return t.k.at(first_k + j, k + c); }));
        if (all.scale) z.back() = round_(z.back() * *all.scale);
        if (all.bias != nullptr) z.back() = round_(z.back() + all.bias->at(i * all.keys + j, h));
      }
      softmax(z, all.may_come_in_pieces ? static_cast<double>(keys.size()) : 1);
      std::ranges::copy(z, p.all.begin() + i * all.keys + keys.begin);
      for (Index c = 0; c < all.head_dim; ++c)  // the sum is divided, not its addends
        t.o.at(first_q + i, q + c) = round_(round_.dot(
                                                keys, [&](Index j) -> auto& { return p.at(i, j); },
                                                [&](Index j) -> auto& { return t.v.at(first_k + j, k + c); }),
                                            Roundings<Number>::of_division);
    }
    return p;
  }
  /// Its dq, and what it adds to dk, dv and dbias.
  void head_backward(const Heads& all, Index b, Index h, const Matrix& dout, const Attention& t,
                     AttentionGradients& d, Addends* dbias) {
    const Index q = h * all.head_dim, k = h / all.shared * all.head_dim;
    const Index first_q = b * all.queries, first_k = b * all.keys;
    const Matrix& p = t.p[static_cast<std::size_t>(b * all.heads + h)];
    const Matrix ds = scores_backward(all, b, h, dout, t, dbias);
    for (Index i = 0; i < all.queries; ++i)
      for (Index c = 0; c < all.head_dim; ++c)
        d.dq.at(first_q + i, q + c) = round_.dot(
            all.seen(i), [&](Index j) -> auto& { return ds.at(i, j); },
            [&](Index j) -> auto& { return t.k.at(first_k + j, k + c); });
    auto add = [&](Number& sum, const Number& addend) { sum = round_(sum + addend); };
    for (Index j = 0; j < all.keys; ++j)
      for (Index c = 0; c < all.head_dim; ++c) {
        add(d.dk.at(first_k + j, k + c), round_.dot(
                                             all.seen_by(j), [&](Index i) -> auto& { return ds.at(i, j); },
                                             [&](Index i) -> auto& { return t.q.at(first_q + i, q + c); }));
        add(d.dv.at(first_k + j, k + c), round_.dot(
                                             all.seen_by(j), [&](Index i) -> auto& { return p.at(i, j); },
                                             [&](Index i) -> auto& { return dout.at(first_q + i, q + c); }));
      }
  }
  /// The gradient of q kᵀ, (queries, keys). The bias is added behind the scale.
  Matrix scores_backward(const Heads& all, Index b, Index h, const Matrix& dout, const Attention& t,
                         Addends* dbias) {
    const Index q = h * all.head_dim, k = h / all.shared * all.head_dim;
    const Index first_q = b * all.queries, first_k = b * all.keys;
    const Matrix& p = t.p[static_cast<std::size_t>(b * all.heads + h)];
    Matrix ds(all.queries, all.keys);
    for (Index i = 0; i < all.queries; ++i) {
      auto d = [&](Index c) -> auto& {
        return dout.at(first_q + i, q + c);
      };
      const Number dots = round_.dot(
          {0, all.head_dim}, d, [&](Index c) -> auto& { return t.o.at(first_q + i, q + c); });
      for (Index j = all.seen(i).begin; j < all.seen(i).end; ++j) {
        const Number dp = round_.dot(
            {0, all.head_dim}, d, [&](Index c) -> auto& { return t.v.at(first_k + j, k + c); });
        ds.at(i, j) = round_(round_(dp - dots) * p.at(i, j));
        if (dbias != nullptr) dbias->add(i * all.keys + j, h, ds.at(i, j));
        if (all.scale) ds.at(i, j) = round_(ds.at(i, j) * *all.scale);
      }
    }
    return ds;
  }

  /// It must be sure on which side of 0 it is, for then its gradient is.
  Number relu(const Number& z) {
    margins_.push_back(z.mapped([&](double x) { return z.value() < 0 ? -x : x; }));
    return z.mapped([](double x) { return std::max(x, 0.0); });
  }

  Matrix p_;  // the probabilities of tokens
};

}  // namespace shard::testing
