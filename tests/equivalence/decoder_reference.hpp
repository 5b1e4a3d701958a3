#pragma once

/// An independent float64 reference of the decoder, from the definitions. Samples say what rounding may make
/// of it (sampled.hpp).

#include <map>
#include <numeric>
#include <string>

#include "engine/layers/tokens.hpp"
#include "engine/workloads/decoder_model.hpp"
#include "tests/equivalence/sampled.hpp"

namespace shard::testing {

/// Forward and backward of a decoder, and steps of SGD, from the definitions: attention is a softmax over all
/// keys that are seen.
template <int Samples>
class SampledDecoder {
 public:
  using Number = Sampled<Samples>;
  using Matrix = Numbers<Number>;
  using Results = std::map<std::string, Matrix>;

  SampledDecoder(const DecoderModel& model, const std::map<std::string, HostTensor>& weights,
                 const HostTensor& input)
      : m_(model), b_(input.shape[0]), s_(input.shape[1] / 2) {
    for (const auto& [name, w] : weights) w_.emplace(name, Matrix(w));
    for (Index b = 0; b < b_; ++b)
      for (Index i = 0; i < 2 * s_; ++i)
        (i < s_ ? ids_ : labels_)
            .push_back(static_cast<Index>(input.values[static_cast<std::size_t>(b * 2 * s_ + i)]));
    score_scale_ =
        round_(Number(1 / std::sqrt(static_cast<double>(m_.head_dim))), 2);  // rounded, and its root
    mean_ = round_(Number(1 / static_cast<double>(m_.model_dim)));
  }

  Matrix& weight(const std::string& name) { return w_.at(name); }
  /// Differences of logits that must not change their sign: choices of experts hang on them.
  const std::vector<Number>& margins() const { return margins_; }

  /// The losses, (B · S, 1).
  Matrix forward() {
    const Index rows = b_ * s_;
    blocks_.assign(static_cast<std::size_t>(m_.num_blocks), {});
    x_ = w_.at(embedding_name()).some_rows(ids_);
    for (Index b = 0; b < m_.num_blocks; ++b) {
      Trace& t = blocks_[static_cast<std::size_t>(b)];
      round_.add_to(x_, attend(b, t));
      t.f = norm(x_, block_name(b, "feed_forward_norm"), t.feed_forward_norm);
      round_.add_to(x_, m_.is_mixture() ? mixture(b, t) : feed_forward(b, 0, t.f, t.experts.emplace_back()));
    }
    n_ = norm(x_, final_norm_name(), final_norm_);
    const Matrix z = round_.product(n_, w_.at(head()).transposed());
    Matrix losses(rows, 1);
    p_ = Matrix(rows, m_.vocabulary);
    for (Index t = 0; t < rows; ++t) {
      std::vector<Number> row(z.all.begin() + t * z.columns, z.all.begin() + (t + 1) * z.columns);
      const Number log_of_sum = softmax(row, 1);
      std::ranges::copy(row, p_.all.begin() + t * z.columns);
      const Index label = labels_[static_cast<std::size_t>(t)];
      if (label != Tokens::no_label) losses.at(t, 0) = round_(log_of_sum - z.at(t, label));
    }
    return losses;
  }

  /// The gradient of each parameter, after `forward`.
  Results backward(const HostTensor& dlosses) {
    results_.clear();
    Matrix dz = std::move(p_);
    for (Index t = 0; t < dz.rows; ++t) {
      const Index label = labels_[static_cast<std::size_t>(t)];
      const bool is_labelled = label != Tokens::no_label;
      if (is_labelled) dz.at(t, label) = round_(dz.at(t, label) - Number(1));
      const double dloss = is_labelled ? dlosses.values[static_cast<std::size_t>(t)] : 0;
      for (Index v = 0; v < dz.columns; ++v) dz.at(t, v) = round_(dz.at(t, v) * Number(dloss));
    }
    put(head(), round_.product(dz.transposed(), n_));
    Matrix d = norm_backward(round_.product(dz, w_.at(head())), final_norm_name(), final_norm_);
    for (Index b = m_.num_blocks - 1; b >= 0; --b) {
      Trace& t = blocks_[static_cast<std::size_t>(b)];
      const Matrix df =
          m_.is_mixture() ? mixture_backward(b, d, t) : feed_forward_backward(b, 0, d, t.f, t.experts[0]);
      round_.add_to(d, norm_backward(df, block_name(b, "feed_forward_norm"), t.feed_forward_norm));
      round_.add_to(d, attend_backward(b, d, t));
    }
    put(embedding_name(), of_tokens(d));
    return std::move(results_);
  }

  void sgd_step(const Results& gradients, double rate) {
    for (auto& [name, w] : w_)
      for (std::size_t i = 0; i < w.all.size(); ++i)
        w.all[i] = round_(w.all[i] - round_(Number(rate) * gradients.at(name).all[i], 2));
  }

 private:
  struct Norm {
    Matrix x_hat;
    std::vector<Number> r;
  };
  struct Expert {
    std::vector<Index> tokens;
    Matrix n, g, u, h, y;
  };
  struct Trace {
    Norm attention_norm, feed_forward_norm;
    Matrix n, q, k, v, o, f, gates;
    std::vector<Matrix> p;  // of each sequence and head: (S, S)
    std::vector<Expert> experts;
    std::vector<Index> chosen;  // (T · k)
  };

  std::string head() const { return m_.is_tied ? embedding_name() : head_name(); }
  void put(const std::string& name, Matrix gradient) {
    const auto [found, is_new] = results_.try_emplace(name, std::move(gradient));
    if (!is_new) round_.add_to(found->second, gradient);
  }

  Matrix norm(const Matrix& x, const std::string& name, Norm& kept) {
    const Matrix& w = w_.at(name);
    kept = {Matrix(x.rows, x.columns), {}};
    Matrix y(x.rows, x.columns);
    for (Index t = 0; t < x.rows; ++t) {
      Number squares;
      for (Index c = 0; c < x.columns; ++c) squares = squares + x.at(t, c) * x.at(t, c);
      squares = round_.of_sum(squares, static_cast<double>(x.columns), squares.value());
      const Number argument = round_(round_(squares * mean_) + Number(double{m_.epsilon}));
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
  /// The softmax of z, in its place. Returns log Σ exp z. Exponents are differences to the largest. Where
  /// keys come in so many pieces, powers are multiplied by others for each piece that follows.
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

  /// Each head turned by its token's position, forward (1) or back (-1): computed in float64, rounded once.
  Matrix turned(Matrix t, int direction) {
    const Index half = m_.head_dim / 2;
    for (Index row = 0; row < t.rows; ++row)
      for (Index first = 0; first < t.columns; first += m_.head_dim)
        for (Index j = 0; j < half; ++j) {
          const double pair = static_cast<double>(2 * j) / static_cast<double>(m_.head_dim);
          const double angle = static_cast<double>(row % s_) / std::pow(m_.rope_base, pair);
          const Number c(std::cos(angle)), s(direction * std::sin(angle));
          const Number x = t.at(row, first + j), y = t.at(row, first + j + half);
          t.at(row, first + j) = round_(x * c - y * s);
          t.at(row, first + j + half) = round_(x * s + y * c);
        }
    return t;
  }

  /// The keys that position i sees.
  Range seen(Index i) const { return {m_.window ? std::max<Index>(i - *m_.window + 1, 0) : 0, i + 1}; }

  /// The positions that see this one.
  Range seen_by(Index j) const { return {j, m_.window ? std::min(j + *m_.window, s_) : s_}; }

  Matrix attend(Index b, Trace& t) {
    t.n = norm(x_, block_name(b, "attention_norm"), t.attention_norm);
    t.q = turned(round_.product(t.n, w_.at(block_name(b, "query"))), 1);
    t.k = turned(round_.product(t.n, w_.at(block_name(b, "key"))), 1);
    t.v = round_.product(t.n, w_.at(block_name(b, "value")));
    t.o = Matrix(b_ * s_, m_.query_width());
    for (Index first = 0; first < b_ * s_; first += s_)
      for (Index h = 0; h < m_.heads; ++h) t.p.push_back(attend_head(first, h, t));
    return round_.product(t.o, w_.at(block_name(b, "output")));
  }
  /// Head h of the sequence whose first row is `first`: its part of o, and its probabilities.
  Matrix attend_head(Index first, Index h, Trace& t) {
    const Index q = h * m_.head_dim, k = h / m_.shared() * m_.head_dim;  // where it begins
    Matrix p(s_, s_);
    for (Index i = 0; i < s_; ++i) {
      const Range keys = seen(i);
      std::vector<Number> z;
      for (Index j = keys.begin; j < keys.end; ++j)
        z.push_back(round_(score_scale_ *
                           round_.dot(
                               {0, m_.head_dim}, [&](Index c) -> auto& { return t.q.at(first + i, q + c); },
                               [&](Index c) -> auto& { return t.k.at(first + j, k + c); })));
      softmax(z, static_cast<double>(keys.size()));
      std::ranges::copy(z, p.all.begin() + i * s_ + keys.begin);
      for (Index c = 0; c < m_.head_dim; ++c)
        t.o.at(first + i, q + c) = round_.dot(
            keys, [&](Index j) -> auto& { return p.at(i, j); },
            [&](Index j) -> auto& { return t.v.at(first + j, k + c); });
    }
    return p;
  }

  Matrix attend_backward(Index b, const Matrix& d, const Trace& t) {
    const Matrix dout = round_.product(d, w_.at(block_name(b, "output")).transposed());
    put(block_name(b, "output"), round_.product(t.o.transposed(), d));
    Matrix dq(b_ * s_, m_.query_width()), dk(b_ * s_, m_.key_width()), dv = dk;
    for (Index row = 0; row < b_ * s_; row += s_)
      for (Index h = 0; h < m_.heads; ++h) head_backward(row, h, dout, t, dq, dk, dv);
    dq = turned(std::move(dq), -1), dk = turned(std::move(dk), -1);
    Matrix dn(b_ * s_, m_.model_dim);
    for (const auto& [name, dt] : {std::pair("query", &dq), std::pair("key", &dk), std::pair("value", &dv)}) {
      put(block_name(b, name), round_.product(t.n.transposed(), *dt));
      round_.add_to(dn, round_.product(*dt, w_.at(block_name(b, name)).transposed()));
    }
    return norm_backward(dn, block_name(b, "attention_norm"), t.attention_norm);
  }
  /// Its dq, and what it adds to dk and dv.
  void head_backward(Index first, Index h, const Matrix& dout, const Trace& t, Matrix& dq, Matrix& dk,
                     Matrix& dv) {
    const Index q = h * m_.head_dim, k = h / m_.shared() * m_.head_dim;
    const Matrix& p = t.p[static_cast<std::size_t>(first / s_ * m_.heads + h)];
    Matrix ds(s_, s_);
    for (Index i = 0; i < s_; ++i) {
      auto d = [&](Index c) -> auto& {
        return dout.at(first + i, q + c);
      };
      const Number dots = round_.dot(
          {0, m_.head_dim}, d, [&](Index c) -> auto& { return t.o.at(first + i, q + c); });
      for (Index j = seen(i).begin; j <= i; ++j) {
        const Number dp = round_.dot(
            {0, m_.head_dim}, d, [&](Index c) -> auto& { return t.v.at(first + j, k + c); });
        ds.at(i, j) = round_(score_scale_ * round_(round_(dp - dots) * p.at(i, j)));
      }
      for (Index c = 0; c < m_.head_dim; ++c)
        dq.at(first + i, q + c) = round_.dot(
            seen(i), [&](Index j) -> auto& { return ds.at(i, j); },
            [&](Index j) -> auto& { return t.k.at(first + j, k + c); });
    }
    for (Index j = 0; j < s_; ++j)
      for (Index c = 0; c < m_.head_dim; ++c) {
        add(dk.at(first + j, k + c), round_.dot(
                                         seen_by(j), [&](Index i) -> auto& { return ds.at(i, j); },
                                         [&](Index i) -> auto& { return t.q.at(first + i, q + c); }));
        add(dv.at(first + j, k + c), round_.dot(
                                         seen_by(j), [&](Index i) -> auto& { return p.at(i, j); },
                                         [&](Index i) -> auto& { return dout.at(first + i, q + c); }));
      }
  }
  void add(Number& sum, const Number& addend) { sum = round_(sum + addend); }

  Matrix feed_forward(Index b, Index e, const Matrix& n, Expert& t) {
    t.g = round_.product(n, w_.at(feed_forward_name(m_, b, e, "gate")));
    t.u = round_.product(n, w_.at(feed_forward_name(m_, b, e, "up")));
    t.h = t.u;
    for (std::size_t i = 0; i < t.h.all.size(); ++i) t.h.all[i] = round_(silu(t.g.all[i]) * t.u.all[i]);
    return round_.product(t.h, w_.at(feed_forward_name(m_, b, e, "down")));
  }
  Number silu(const Number& z) {
    return round_(z.mapped([](double g) { return g / (1 + std::exp(-g)); }),
                  Roundings<Number>::of_sigmoid + 1);
  }
  /// σ(z) (1 + z σ(−z)): the error of z σ(−z) stays as large beside the 1.
  Number silu_slope(const Number& z) {
    auto sigmoid = [](double g) { return 1 / (1 + std::exp(-g)); };
    const Number slope = z.mapped([&](double g) { return sigmoid(g) * (1 + g * sigmoid(-g)); });
    const double g = z.value(), units = Roundings<Number>::of_sigmoid + 1;
    return round_.moved(round_(slope, units + 1),
                        Roundings<Number>::u * units * std::abs(g) * sigmoid(g) * sigmoid(-g));
  }
  Matrix feed_forward_backward(Index b, Index e, const Matrix& dy, const Matrix& n, const Expert& t) {
    put(feed_forward_name(m_, b, e, "down"), round_.product(t.h.transposed(), dy));
    const Matrix dh = round_.product(dy, w_.at(feed_forward_name(m_, b, e, "down")).transposed());
    Matrix dg = dh, du = dh;
    for (std::size_t i = 0; i < dh.all.size(); ++i) {
      dg.all[i] = round_(round_(dh.all[i] * t.u.all[i]) * silu_slope(t.g.all[i]));
      du.all[i] = round_(dh.all[i] * silu(t.g.all[i]));
    }
    put(feed_forward_name(m_, b, e, "gate"), round_.product(n.transposed(), dg));
    put(feed_forward_name(m_, b, e, "up"), round_.product(n.transposed(), du));
    Matrix dn = round_.product(dg, w_.at(feed_forward_name(m_, b, e, "gate")).transposed());
    round_.add_to(dn, round_.product(du, w_.at(feed_forward_name(m_, b, e, "up")).transposed()));
    return dn;
  }

  Matrix mixture(Index b, Trace& t) {
    choose(round_.product(t.f, w_.at(block_name(b, "router"))), t);
    Matrix y(t.f.rows, m_.model_dim);
    for (Index e = 0; e < m_.experts; ++e) {
      Expert& expert = t.experts.emplace_back();
      for (std::size_t c = 0; c < t.chosen.size(); ++c)
        if (t.chosen[c] == e) expert.tokens.push_back(static_cast<Index>(c));
      expert.n = t.f.some_rows(tokens_of(expert));
      expert.y = feed_forward(b, e, expert.n, expert);
      for (Index i = 0; i < expert.y.rows; ++i)
        for (Index c = 0; c < m_.model_dim; ++c) {
          const Index choice = expert.tokens[static_cast<std::size_t>(i)];
          const Number addend = gate(t, choice) * expert.y.at(i, c);
          Number& sum = y.at(choice / m_.top_k, c);
          sum = round_.of_sum(sum + addend, static_cast<double>(m_.top_k), std::abs(addend.value()));
        }
    }
    return y;
  }
  const Number& gate(const Trace& t, Index choice) const {
    return t.gates.at(choice / m_.top_k, choice % m_.top_k);
  }
  std::vector<Index> tokens_of(const Expert& expert) const {
    std::vector<Index> tokens = expert.tokens;
    for (Index& choice : tokens) choice /= m_.top_k;
    return tokens;
  }
  /// The largest logits of each token, and the softmax of these.
  void choose(const Matrix& logits, Trace& t) {
    t.gates = Matrix(logits.rows, m_.top_k);
    for (Index row = 0; row < logits.rows; ++row) {
      std::vector<Index> order(static_cast<std::size_t>(m_.experts));
      std::iota(order.begin(), order.end(), Index{0});
      std::ranges::sort(order, std::greater(), [&](Index e) { return logits.at(row, e).value(); });
      std::vector<Number> z;
      for (Index r = 0; r < m_.top_k; ++r) {
        const Index e = order[static_cast<std::size_t>(r)];
        if (r + 1 < m_.experts)
          margins_.push_back(logits.at(row, e) - logits.at(row, order[static_cast<std::size_t>(r + 1)]));
        z.push_back(logits.at(row, e));
        t.chosen.push_back(e);
      }
      softmax(z, 1);
      std::ranges::copy(z, t.gates.all.begin() + row * m_.top_k);
    }
  }
  Matrix mixture_backward(Index b, const Matrix& d, const Trace& t) {
    Matrix df(d.rows, d.columns), dgates = t.gates, dlogits(d.rows, m_.experts);
    for (Index e = 0; e < m_.experts; ++e) {
      const Expert& expert = t.experts[static_cast<std::size_t>(e)];
      Matrix dy = d.some_rows(tokens_of(expert));
      for (Index i = 0; i < dy.rows; ++i) {
        const Index choice = expert.tokens[static_cast<std::size_t>(i)];
        dgates.at(choice / m_.top_k, choice % m_.top_k) = round_.dot_rows(dy, i, expert.y, i);
        for (Index c = 0; c < dy.columns; ++c) dy.at(i, c) = round_(gate(t, choice) * dy.at(i, c));
      }
      const Matrix dn = feed_forward_backward(b, e, dy, expert.n, expert);
      for (Index i = 0; i < dn.rows; ++i)
        for (Index c = 0; c < dn.columns; ++c) {
          Number& sum = df.at(expert.tokens[static_cast<std::size_t>(i)] / m_.top_k, c);
          sum =
              round_.of_sum(sum + dn.at(i, c), static_cast<double>(m_.top_k), std::abs(dn.at(i, c).value()));
        }
    }
    for (Index row = 0; row < d.rows; ++row) {
      const Number dots = round_.dot_rows(t.gates, row, dgates, row);
      for (Index r = 0; r < m_.top_k; ++r)
        dlogits.at(row, t.chosen[static_cast<std::size_t>(row * m_.top_k + r)]) =
            round_(t.gates.at(row, r) * round_(dgates.at(row, r) - dots));
    }
    put(block_name(b, "router"), round_.product(t.f.transposed(), dlogits));
    round_.add_to(df, round_.product(dlogits, w_.at(block_name(b, "router")).transposed()));
    return df;
  }

  /// The sum of the rows of each token.
  Matrix of_tokens(const Matrix& d) {
    Matrix table(m_.vocabulary, m_.model_dim);
    for (Index row = 0; row < d.rows; ++row) {
      const Index id = ids_[static_cast<std::size_t>(row)];
      const auto terms = static_cast<double>(std::ranges::count(ids_, id));
      for (Index c = 0; c < d.columns; ++c)
        table.at(id, c) =
            round_.of_sum(table.at(id, c) + d.at(row, c), terms, std::abs(d.at(row, c).value()));
    }
    return table;
  }

  DecoderModel m_;
  Index b_, s_;                      // sequences, and their length
  std::vector<Index> ids_, labels_;  // (B · S)
  Roundings<Number> round_;
  Number score_scale_, mean_;  // 1/√d and 1/D
  std::map<std::string, Matrix> w_;
  Matrix x_;  // (B · S, D)   the residual stream
  std::vector<Trace> blocks_;
  Norm final_norm_;
  Matrix n_, p_;  // what the head reads, and the probabilities of tokens
  std::vector<Number> margins_;
  Results results_;
};

}  // namespace shard::testing
