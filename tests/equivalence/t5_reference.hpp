#pragma once

/// An independent float64 reference of the encoder-decoder, from the definitions. Samples say what rounding
/// may make of it (sampled.hpp).

#include "engine/workloads/decoder_model.hpp"
#include "engine/workloads/t5_model.hpp"
#include "tests/equivalence/sampled_layers.hpp"

namespace shard::testing {

/// Forward and backward of a T5, and steps of SGD. Its input is (B, 1 + n + 2 S).
template <int Samples>
class SampledT5 : public SampledLayers<Samples> {
  using Layers = SampledLayers<Samples>;

 public:
  using typename Layers::Matrix, typename Layers::Number, typename Layers::Results;

  SampledT5(const T5Model& model, const std::map<std::string, HostTensor>& weights, const HostTensor& input)
      : Layers(weights, model.model_dim, model.epsilon), m_(model), b_(input.shape[0]) {
    auto number = input.values.begin();
    for (Index b = 0; b < b_; ++b) {
      encoder_.length = static_cast<Index>(*number++);
      decoder_.length = (input.shape[1] - 1 - encoder_.length) / 2;
      for (auto [to, count] :
           {std::pair(&encoder_.ids, encoder_.length), std::pair(&decoder_.ids, decoder_.length),
            std::pair(&labels_, decoder_.length)})
        for (Index i = 0; i < count; ++i) to->push_back(static_cast<Index>(*number++));
    }
    if (m_.is_tied)  // and its root
      logit_scale_ = round_(Number(1 / std::sqrt(static_cast<double>(m_.model_dim))), 2);
  }

  /// The losses, (B · S, 1).
  Matrix forward() {
    for (Stack* stack : {&encoder_, &decoder_}) read(*stack);
    return losses(decoder_.n, w_.at(head()), logit_scale_, labels_);
  }

  /// The gradient of each parameter, after `forward`.
  Results backward(const HostTensor& dlosses) {
    results_.clear();
    const Matrix dz = losses_backward(dlosses, logit_scale_, labels_);
    Addends dtable(m_.vocabulary, m_.model_dim), dsource(encoder_.n.rows, m_.model_dim);
    if (m_.is_tied)
      dtable.add_product(dz.transposed(), decoder_.n);
    else
      put(head_name(), round_.product(dz.transposed(), decoder_.n));
    add_rows(dtable, decoder_.ids, read_backward(decoder_, round_.product(dz, w_.at(head())), dsource));
    add_rows(dtable, encoder_.ids, read_backward(encoder_, round_.of(dsource), dsource));
    put(embedding_name(), round_.of(dtable));
    return std::move(results_);
  }

 private:
  using Layers::add_rows, Layers::attend, Layers::attend_backward, Layers::feed_forward,
      Layers::feed_forward_backward, Layers::losses, Layers::losses_backward, Layers::norm,
      Layers::norm_backward, Layers::put, Layers::results_, Layers::round_, Layers::w_;
  using typename Layers::Addends, typename Layers::Attention, typename Layers::FeedForward,
      typename Layers::Heads, typename Layers::Norm;

  struct AttentionTrace {
    Norm norm;
    Matrix n;
    Attention of;
  };
  struct Trace {
    AttentionTrace self, cross;
    Norm norm;
    Matrix f;
    FeedForward feed_forward;
  };
  struct Stack {
    Side side;
    Index length = 0;  // of each sequence
    std::vector<Index> ids{};
    Matrix bias{};  // (S · S, H)
    std::vector<Trace> blocks{};
    Norm norm{};
    Matrix n{};  // what it returns
  };

  std::string head() const { return m_.is_tied ? embedding_name() : head_name(); }

  /// The bucket of a key that stands `ahead` of a query. Half of the buckets hold one distance each. The
  /// others begin at distances that grow by one factor, up to the largest distance. In the encoder, keys
  /// ahead have half of all buckets for themselves; in the decoder, they are like the query's own position.
  Index bucket(Side side, Index ahead) const {
    const Index buckets = side == Side::encoder ? m_.buckets / 2 : m_.buckets, single = buckets / 2;
    const Index distance = side == Side::encoder ? std::abs(ahead) : std::max<Index>(-ahead, 0);
    const Index first = side == Side::encoder && ahead > 0 ? buckets : 0;
    if (distance < single) return first + distance;
    const double growth = static_cast<double>(m_.max_distance) / static_cast<double>(single);
    Index bucket = single;
    while (bucket + 1 < buckets &&
           static_cast<double>(distance) >=
               static_cast<double>(single) * std::pow(growth, static_cast<double>(bucket + 1 - single) /
                                                                  static_cast<double>(buckets - single)))
      ++bucket;
    return first + bucket;
  }
  std::vector<Index> buckets(const Stack& stack) const {
    std::vector<Index> all;
    for (Index i = 0; i < stack.length; ++i)
      for (Index j = 0; j < stack.length; ++j) all.push_back(bucket(stack.side, j - i));
    return all;
  }

  Heads own_tokens(const Stack& stack) const {
    Heads heads{b_, stack.length, stack.length, m_.heads, m_.head_dim};
    heads.is_causal = stack.side == Side::decoder;
    heads.bias = &stack.bias;
    return heads;
  }
  Heads source_tokens() const {
    Heads heads{b_, decoder_.length, encoder_.length, m_.heads, m_.head_dim};
    heads.is_causal = false;
    return heads;
  }

  void read(Stack& stack) {
    stack.bias = w_.at(t5_name(stack.side, "position_bias")).some_rows(buckets(stack));
    stack.blocks.assign(static_cast<std::size_t>(m_.blocks(stack.side)), {});
    Matrix x = w_.at(embedding_name()).some_rows(stack.ids);
    for (Index b = 0; b < m_.blocks(stack.side); ++b) {
      Trace& t = stack.blocks[static_cast<std::size_t>(b)];
      round_.add_to(x, attention(t5_name(stack.side, b, "self_"), x, own_tokens(stack), t.self, nullptr));
      if (stack.side == Side::decoder)
        round_.add_to(x,
                      attention(t5_name(stack.side, b, "cross_"), x, source_tokens(), t.cross, &encoder_.n));
      t.f = norm(x, t5_name(stack.side, b, "feed_forward_norm"), t.norm);
      round_.add_to(x, feed_forward(t.f, names(stack.side, b), m_.hidden, t.feed_forward));
    }
    stack.n = norm(x, t5_name(stack.side, "final_norm"), stack.norm);
  }
  /// d is the gradient of what the stack returned. Returns that of what it read.
  Matrix read_backward(Stack& stack, Matrix d, Addends& dsource) {
    d = norm_backward(d, t5_name(stack.side, "final_norm"), stack.norm);
    Addends dbias(stack.length * stack.length, m_.heads);
    for (Index b = m_.blocks(stack.side) - 1; b >= 0; --b) {
      const Trace& t = stack.blocks[static_cast<std::size_t>(b)];
      const Matrix df = feed_forward_backward(d, t.f, names(stack.side, b), m_.hidden, t.feed_forward);
      round_.add_to(d, norm_backward(df, t5_name(stack.side, b, "feed_forward_norm"), t.norm));
      if (stack.side == Side::decoder)
        round_.add_to(d, attention_backward(t5_name(stack.side, b, "cross_"), d, source_tokens(), t.cross,
                                            &encoder_.n, &dsource, nullptr));
      round_.add_to(d, attention_backward(t5_name(stack.side, b, "self_"), d, own_tokens(stack), t.self,
                                          nullptr, nullptr, &dbias));
    }
    put(t5_name(stack.side, "position_bias"), bias_backward(stack, dbias));
    return d;
  }
  Matrix bias_backward(const Stack& stack, const Addends& dbias) {
    const std::vector<Index> of_pairs = buckets(stack);
    Addends table(m_.buckets, m_.heads);
    for (std::size_t i = 0; i < of_pairs.size(); ++i)
      for (Index h = 0; h < m_.heads; ++h) {
        const std::size_t at = i * static_cast<std::size_t>(m_.heads) + static_cast<std::size_t>(h);
        table.add(of_pairs[i], h, dbias.sums.all[at], dbias.magnitudes[at], dbias.terms[at]);
      }
    return round_.of(table);
  }
  auto names(Side side, Index b) const {
    return [=](const char* of) { return t5_name(side, b, of); };
  }

  /// `source`: what keys and values are made of, if not of what queries are.
  Matrix attention(const std::string& name, const Matrix& x, const Heads& heads, AttentionTrace& t,
                   const Matrix* source) {
    t.n = norm(x, name + "norm", t.norm);
    const Matrix& of_keys = source != nullptr ? *source : t.n;
    t.of.q = round_.product(t.n, w_.at(name + "query"));
    t.of.k = round_.product(of_keys, w_.at(name + "key"));
    t.of.v = round_.product(of_keys, w_.at(name + "value"));
    attend(heads, t.of);
    return round_.product(t.of.o, w_.at(name + "output"));
  }
  Matrix attention_backward(const std::string& name, const Matrix& d, const Heads& heads,
                            const AttentionTrace& t, const Matrix* source, Addends* dsource, Addends* dbias) {
    const Matrix& of_keys = source != nullptr ? *source : t.n;
    put(name + "output", round_.product(t.of.o.transposed(), d));
    const auto [dq, dk, dv] =
        attend_backward(heads, round_.product(d, w_.at(name + "output").transposed()), t.of, dbias);
    put(name + "query", round_.product(t.n.transposed(), dq));
    put(name + "key", round_.product(of_keys.transposed(), dk));
    put(name + "value", round_.product(of_keys.transposed(), dv));
    Addends dn(t.n.rows, t.n.columns);
    Addends& dkeys = dsource != nullptr ? *dsource : dn;
    dn.add_product(dq, w_.at(name + "query").transposed());
    dkeys.add_product(dk, w_.at(name + "key").transposed());
    dkeys.add_product(dv, w_.at(name + "value").transposed());
    return norm_backward(round_.of(dn), name + "norm", t.norm);
  }

  T5Model m_;
  Index b_;
  Stack encoder_{.side = Side::encoder}, decoder_{.side = Side::decoder};
  std::vector<Index> labels_;          // (B · S)
  std::optional<Number> logit_scale_;  // 1/√D, of a table that is also the head
};

}  // namespace shard::testing
