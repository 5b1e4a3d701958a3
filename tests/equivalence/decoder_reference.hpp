#pragma once

/// An independent float64 reference of the decoder, from the definitions. Samples say what rounding may make
/// of it (sampled.hpp).

#include <numeric>

#include "engine/workloads/decoder_model.hpp"
#include "tests/equivalence/sampled_layers.hpp"

namespace shard::testing {

/// Forward and backward of a decoder, and steps of SGD.
template <int Samples>
class SampledDecoder : public SampledLayers<Samples> {
  using Layers = SampledLayers<Samples>;

 public:
  using typename Layers::Matrix, typename Layers::Number, typename Layers::Results;

  SampledDecoder(const DecoderModel& model, const std::map<std::string, HostTensor>& weights,
                 const HostTensor& input)
      : Layers(weights, model.model_dim, model.epsilon),
        m_(model),
        b_(input.shape[0]),
        s_(input.shape[1] / 2) {
    for (Index b = 0; b < b_; ++b)
      for (Index i = 0; i < 2 * s_; ++i)
        (i < s_ ? ids_ : labels_)
            .push_back(static_cast<Index>(input.values[static_cast<std::size_t>(b * 2 * s_ + i)]));
    heads_ = {b_, s_, s_, m_.heads, m_.head_dim, m_.shared()};
    heads_.scale = round_(Number(1 / std::sqrt(static_cast<double>(m_.head_dim))), 2);  // and its root
    heads_.window = m_.window;
    heads_.may_come_in_pieces = true;
  }

  /// The losses, (B · S, 1).
  Matrix forward() {
    blocks_.assign(static_cast<std::size_t>(m_.num_blocks), {});
    Matrix x = w_.at(embedding_name()).some_rows(ids_);  // the residual stream
    for (Index b = 0; b < m_.num_blocks; ++b) {
      Trace& t = blocks_[static_cast<std::size_t>(b)];
      round_.add_to(x, attention(b, x, t));
      t.f = norm(x, block_name(b, "feed_forward_norm"), t.feed_forward_norm);
      round_.add_to(x, m_.is_mixture() ? mixture(b, t) : think(b, t));
    }
    n_ = norm(x, final_norm_name(), final_norm_);
    return losses(n_, w_.at(head()), std::nullopt, labels_);
  }

  /// The gradient of each parameter, after `forward`.
  Results backward(const HostTensor& dlosses) {
    results_.clear();
    const Matrix dz = losses_backward(dlosses, std::nullopt, labels_);
    Addends dtable(m_.vocabulary, m_.model_dim);
    if (m_.is_tied)
      dtable.add_product(dz.transposed(), n_);
    else
      put(head_name(), round_.product(dz.transposed(), n_));
    Matrix d = norm_backward(round_.product(dz, w_.at(head())), final_norm_name(), final_norm_);
    for (Index b = m_.num_blocks - 1; b >= 0; --b) {
      Trace& t = blocks_[static_cast<std::size_t>(b)];
      const Matrix df = m_.is_mixture() ? mixture_backward(b, d, t) : think_backward(b, d, t);
      round_.add_to(d, norm_backward(df, block_name(b, "feed_forward_norm"), t.feed_forward_norm));
      round_.add_to(d, attention_backward(b, d, t));
    }
    add_rows(dtable, ids_, d);
    put(embedding_name(), round_.of(dtable));
    return std::move(results_);
  }

 private:
  using Layers::add_rows, Layers::attend, Layers::attend_backward, Layers::feed_forward,
      Layers::feed_forward_backward, Layers::losses, Layers::losses_backward, Layers::margins_, Layers::norm,
      Layers::norm_backward, Layers::put, Layers::results_, Layers::round_, Layers::softmax, Layers::w_;
  using typename Layers::Addends, typename Layers::Attention, typename Layers::FeedForward,
      typename Layers::Heads, typename Layers::Norm;

  struct Expert {
    std::vector<Index> tokens;
    Matrix n, y;
    FeedForward of;
  };
  struct Trace {
    Norm attention_norm, feed_forward_norm;
    Matrix n, f, gates;
    Attention attention;
    FeedForward feed_forward;
    std::vector<Expert> experts;
    std::vector<Index> chosen;  // (T · k)
  };

  std::string head() const { return m_.is_tied ? embedding_name() : head_name(); }
  auto expert_names(Index b, Index e) const {
    return [=, this](const char* of) { return feed_forward_name(m_, b, e, of); };
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

  Matrix attention(Index b, const Matrix& x, Trace& t) {
    t.n = norm(x, block_name(b, "attention_norm"), t.attention_norm);
    t.attention.q = turned(round_.product(t.n, w_.at(block_name(b, "query"))), 1);
    t.attention.k = turned(round_.product(t.n, w_.at(block_name(b, "key"))), 1);
    t.attention.v = round_.product(t.n, w_.at(block_name(b, "value")));
    attend(heads_, t.attention);
    return round_.product(t.attention.o, w_.at(block_name(b, "output")));
  }
  Matrix attention_backward(Index b, const Matrix& d, const Trace& t) {
    const Matrix dout = round_.product(d, w_.at(block_name(b, "output")).transposed());
    put(block_name(b, "output"), round_.product(t.attention.o.transposed(), d));
    auto [dq, dk, dv] = attend_backward(heads_, dout, t.attention);
    dq = turned(std::move(dq), -1), dk = turned(std::move(dk), -1);
    Addends dn(b_ * s_, m_.model_dim);
    for (const auto& [name, dt] : {std::pair("query", &dq), std::pair("key", &dk), std::pair("value", &dv)}) {
      put(block_name(b, name), round_.product(t.n.transposed(), *dt));
      dn.add_product(*dt, w_.at(block_name(b, name)).transposed());
    }
    return norm_backward(round_.of(dn), block_name(b, "attention_norm"), t.attention_norm);
  }

  Matrix think(Index b, Trace& t) {
    return feed_forward(t.f, expert_names(b, 0), Hidden::swiglu, t.feed_forward);
  }
  Matrix think_backward(Index b, const Matrix& d, const Trace& t) {
    return feed_forward_backward(d, t.f, expert_names(b, 0), Hidden::swiglu, t.feed_forward);
  }

  Matrix mixture(Index b, Trace& t) {
    choose(round_.product(t.f, w_.at(block_name(b, "router"))), t);
    Matrix y(t.f.rows, m_.model_dim);
    for (Index e = 0; e < m_.experts; ++e) {
      Expert& expert = t.experts.emplace_back();
      for (std::size_t c = 0; c < t.chosen.size(); ++c)
        if (t.chosen[c] == e) expert.tokens.push_back(static_cast<Index>(c));
      expert.n = t.f.some_rows(tokens_of(expert));
      expert.y = feed_forward(expert.n, expert_names(b, e), Hidden::swiglu, expert.of);
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
      const Matrix dn = feed_forward_backward(dy, expert.n, expert_names(b, e), Hidden::swiglu, expert.of);
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

  DecoderModel m_;
  Index b_, s_;                      // sequences, and their length
  std::vector<Index> ids_, labels_;  // (B · S)
  Heads heads_{};
  std::vector<Trace> blocks_;
  Norm final_norm_;
  Matrix n_;  // what the head reads
};

}  // namespace shard::testing
