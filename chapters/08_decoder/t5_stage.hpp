#pragma once

/// What a device computes of an encoder-decoder: some blocks of each stack, or all, with all of their heads
/// and hidden units, or some. Types say which (t5_blocks.hpp): where heads are divided, what a part of a
/// block computes is a Partial, and `sum` reduces it.

#include "t5_block.hpp"
#include "t5_split.hpp"
#include "vocabulary_loss.hpp"

namespace shard::decoders {

/// What goes from a device to the next one, and in the same form its gradient, which comes back.
template <Layout X>
struct T5Stream {
  X encoder;  ///< (T_e, D)   the residual stream of the encoder, or what the encoder returned
  X decoder;  ///< (T, D)     that of the decoder, once it has begun; behind the last device (T, 1), losses
};

template <Layout X, Layout C, Layout R>
struct T5Stage {
  using Y = ProductOf<C, R>;
  using Kept = T5Kept<X, C>;

  LanguageModel& engine;
  T5Model m;
  T5Split split;
  int device;
  T5Weights<X, C, R> w{};
  T5Weights<X, C, R> copies{};  ///< of tables that this device reads and another one owns

  bool is_last() const { return device == split.last(); }
  const R& table() const { return copies.embedding.is_empty() ? w.embedding : copies.embedding; }
  const R& head() const { return m.is_tied ? table() : w.own_head; }
  const C& bias(Side side) const {
    const C& copy = copies.stack(side).position_bias;
    return copy.is_empty() ? w.stack(side).position_bias : copy;
  }
  /// A tensor without rows: the encoder's result in later passes of a generation, where it does not run.
  X nothing() const {
    const Shape none = {0, m.model_dim};
    return laid<X>(engine.group(), Tensor(none), none, engine.device_id());
  }

  /// ## Forward
  /// Through the blocks here. The device with a stack's first block looks up the tokens. The encoder's result is
  /// kept, since keys' gradients need it, so the next device gets a copy.
  T5Stream<X> forward(T5Stream<X> x, Kept& kept) const {
    if (begins(kept.decoder.tokens) && split.has(Side::encoder, device)) read(Side::encoder, x.encoder, kept);
    if (!split.has(Side::decoder, device)) return x;
    kept.encoder.n = std::move(x.encoder);
    read(Side::decoder, x.decoder, kept);
    if (!is_last()) x.encoder = relaid(kept.encoder.n.local().clone(), kept.encoder.n);
    return x;
  }
  /// The losses (T, 1), from the result of the last device's blocks.
  X losses(Kept& kept) const {
    const auto& target = kept.decoder;
    C z = scale(matmul(target.n, transposed(head())), m.how.logit_scale);  // (T, V)   R·S0ᵀ = S1
    engine.show_logits(z, target.tokens);
    return cross_entropy(std::move(z), target.tokens, m.how, kept.decoder.softmax);
  }

  /// ## Backward
  /// The gradient of the last norm's input, (T, D), from that of the losses, (T, 1).
  template <class Put>
  X losses_backward(const X& dlosses, Kept& kept, R& dhead, const Put& put) const {
    return decoders::losses_backward(*this, dlosses, w.decoder.final_norm, head(), kept.decoder.tokens,
                                     kept.decoder, dhead, put, t5_name(Side::decoder, "final_norm"));
  }
  /// d is the gradient of forward's result. Every block of the decoder adds to the gradient of the encoder's
  /// result. Adds the embedding's gradient to `dtable`. Returns the gradient of x.
  template <class Put>
  T5Stream<X> backward(T5Stream<X> d, Kept& kept, R& dtable, const Put& put) const {
    Y dsource;  // (T_e, D)
    if constexpr (std::same_as<X, Y>) dsource = std::move(d.encoder);
    if (split.has(Side::decoder, device)) read_backward(Side::decoder, d.decoder, kept, dsource, dtable, put);
    d.encoder = sum(std::move(dsource));
    if (split.has_last(Side::encoder, device))
      d.encoder = norm_backward(t5_name(Side::encoder, "final_norm"), std::move(d.encoder),
                                w.encoder.final_norm, m.how, kept.encoder.norm, put);
    if (split.has(Side::encoder, device)) read_backward(Side::encoder, d.encoder, kept, dsource, dtable, put);
    return d;
  }

  /// \name As a division (decoder_block.hpp)
  /// @{
  static const X& all_rows(const X& n) { return n; }
  /// The sum of the addends of all devices, P → R, or y itself if it is no addend.
  X sum(Y y, SourceLine where = SourceLine::current()) const {
    if constexpr (std::same_as<X, Y>)
      return y;
    else
      return engine.all_reduce(std::move(y), where);
  }
  /// @}

 private:
  /// ## A stack
  /// x, (T, D), through its blocks here, and through its last norm.
  void read(Side side, X& x, Kept& kept) const {
    T5StackKept<X, C>& k = kept.stack(side);
    k.buckets = buckets_of(k.tokens.positions, all_positions(k.tokens), m.positions(side));  // (S S)
    k.bias = embedding(bias(side), k.buckets);                                               // (S S, H)
    const Index heads = k.bias.local().extent(1);                                            // here
    if (split.has_first(side, device)) x = sum(embedding(table(), k.tokens.ids));            // (T, D)
    for (Index b = split.blocks(side, device).begin; b < split.blocks(side, device).end; ++b) {
      const T5Block<X, C, R>& block = w.stack(side).blocks[static_cast<std::size_t>(b)];
      T5BlockKept<X, C>& kb = k.blocks.emplace_back();
      accumulate(x, sum(attend(m, block.self, x, own_tokens(m, side, b, k.tokens, k.bias.local()), kb.self,
                               nullptr, engine.cache())));
      if (side == Side::decoder)
        accumulate(x, sum(attend(m, block.cross, x, source_tokens(m, b, k.tokens, kept.encoder.tokens, heads),
                                 kb.cross, &kept.encoder.n, engine.cache())));
      accumulate(x, sum(feed_forward_block(m, block, x, kb)));
    }
    if (!split.has_last(side, device)) return;
    X n = rms_norm(x, w.stack(side).final_norm, m.epsilon, m.how, k.norm);  // (T, D)
    (side == Side::encoder ? x : k.n) = std::move(n);
  }
  /// Makes d, the gradient of what the blocks returned, that of what they read.
  template <class Put>
  void read_backward(Side side, X& d, Kept& kept, Y& dsource, R& dtable, const Put& put) const {
    T5StackKept<X, C>& k = kept.stack(side);
    const Index heads = k.bias.local().extent(1);  // here
    Tensor dbias(k.bias.local().shape());          // (S S, H)   of all blocks here
    for (Index b = split.blocks(side, device).end; b-- > split.blocks(side, device).begin;
         k.blocks.pop_back()) {
      const T5Block<X, C, R>& block = w.stack(side).blocks[static_cast<std::size_t>(b)];
      T5BlockKept<X, C>& kb = k.blocks.back();
      auto put_of = [&](const std::string& part) {
        return [&put, before = t5_name(side, b, part)](const char* word, auto dw) {
          put(before + word, std::move(dw));
        };
      };
      accumulate(d, feed_forward_block_backward(*this, block, d, kb, put_of("")));
      if (side == Side::decoder)
        accumulate(d, attend_backward(*this, block.cross, d,
                                      source_tokens(m, b, k.tokens, kept.encoder.tokens, heads), kb.cross,
                                      &kept.encoder.n, dsource, nullptr, put_of("cross_")));
      accumulate(d, attend_backward(*this, block.self, d, own_tokens(m, side, b, k.tokens, k.bias.local()),
                                    kb.self, nullptr, dsource, &dbias, put_of("self_")));
    }
    put(t5_name(side, "position_bias"), embedding_backward(dbias, k.buckets, bias(side)));  // (buckets, H)
    if (!split.has_first(side, device)) return;
    accumulate(dtable, table_gradient(d, k.tokens));
    d = X();
  }
  /// (V, D), or its rows here.
  R table_gradient(const X& d, const Tokens& tokens) const {
    if constexpr (std::same_as<X, R>)
      return embedding_backward(d, tokens.ids, m.vocabulary);
    else
      return embedding_backward(d, tokens.ids, table());
  }
};
using T5OwnedWeights = T5Weights<Owned, Owned, Owned>;

}  // namespace shard::decoders
