#pragma once

///     ./chapters/run 08 -n 4 train --variant t5-tensor
///
/// Tensor parallelism (Shoeybi et al. 2019, section 3) for an encoder-decoder: of heads with their bias, hidden
/// units and the vocabulary. Every device has what the encoder returns; its gradient is reduced once, at the end.
/// Builds on: 08_decoder/t5_single.hpp, 08_decoder/tensor.hpp.

#include "t5_sight.hpp"
#include "t5_tensor_weights.hpp"
#include "vocabulary_loss.hpp"

namespace shard::decoders {

class T5Tensor : public LanguageModel {
 public:
  T5Tensor(Communicator& group, const T5Model& model) : LanguageModel(group), m_(model) {}

  /// ## What this device owns
  /// Some heads of each attention, some hidden units, some rows of the vocabulary, and all norms.
  void load_checkpoint(const Checkpoint& c) override {
    for_each_parameter(m_, w_, [&](const std::string& name, auto& p) { load(c, name, m_, group(), p); });
  }

  /// ## Forward
  /// T_e tokens of sources, and T of targets. A pass that goes on with targets has no sources.
  Placed forward(Tensor input) override {
    auto [source, target] = read_with_source(input, m_.vocabulary);
    MyKept kept{.encoder = {.tokens = std::move(source), .n = Replicated(group(), Tensor({0, m_.model_dim}))},
                .decoder = {std::move(target)}};
    MyStackKept& out = kept.decoder;
    if (begins(out.tokens)) read(Side::encoder, kept.encoder, nullptr);  // (T_e, D)
    read(Side::decoder, out, &kept.encoder);                             // (T, D)
    Sharded<1> z =
        scale(matmul(out.n, transposed(w_.head(m_))), m_.how.logit_scale);  // (T, V/N)   R·S0ᵀ = S1
    show_logits(z.local(), out.tokens, z.offset());
    Replicated losses = cross_entropy(std::move(z), out.tokens, m_.how, kept.softmax);  // (T, 1)
    tape_.push(std::move(kept));
    return losses;
  }

  /// ## Backward
  /// Every block of the decoder adds to the gradient of what the encoder returned.
  Gradients backward(Tensor dloss) override {
    auto [kept] = tape_.pop();
    Gradients gradients;
    const Tokens& target = kept.decoder.tokens;
    const Replicated dlosses(group(), std::move(dloss));  // (T, 1)
    Sharded<1> dz = cross_entropy_backward(dlosses, w_.head(m_), target, m_.how, std::move(kept.softmax));
    Sharded<0> dhead = matmul(transposed(dz), kept.decoder.n);  // (V/N, D)   S1ᵀ·R = S0
    Replicated d = all_reduce(matmul(dz, w_.head(m_)));         // (T, D)     S1·S0 = P → R
    dz = Sharded<1>();
    Partial dsource;  // (T_e, D)
    Sharded<0> dtable = read_backward(Side::decoder, std::move(d), kept.decoder, &kept.encoder, dsource,
                                      gradients);  // (V/N, D)
    d = all_reduce(std::move(dsource));            // P → R
    accumulate(dtable, read_backward(Side::encoder, std::move(d), kept.encoder, nullptr, dsource, gradients));
    put_tables(m_, std::move(dtable), std::move(dhead), gradients);
    return gradients;
  }

  Placement input_layout() const override { return Placement::replicated(); }
  Trainables trainable() override { return trainables(m_, w_); }

 private:
  using MyAttention = T5Attention<Replicated, Sharded<1>, Sharded<0>>;
  using MyBlock = T5Block<Replicated, Sharded<1>, Sharded<0>>;
  using MyAttentionKept = T5AttentionKept<Replicated, Sharded<1>>;
  using MyBlockKept = T5BlockKept<Replicated, Sharded<1>>;
  using MyStackKept = T5StackKept<Replicated, Sharded<1>>;
  using MyKept = T5Kept<Replicated, Sharded<1>>;

  /// ## A stack
  /// `source`: in the decoder, the encoder's.
  void read(Side side, MyStackKept& k, const MyStackKept* source) {
    const auto& w = w_.stack(side);
    k.buckets = buckets_of(k.tokens.positions, all_positions(k.tokens), m_.positions(side));  // (S S)
    k.bias = position_bias(w.position_bias, k.buckets);                                       // (S S, H/N)
    Replicated x = all_reduce(embedding(w_.embedding, k.tokens));                             // (T, D)
    for (const MyBlock& block : w.blocks) {
      MyBlockKept& b = k.blocks.emplace_back();
      accumulate(x, all_reduce(attend(block.self, x, own_tokens(m_, side, k), b.self, nullptr)));
      if (source != nullptr)
        accumulate(x, all_reduce(attend(block.cross, x, source_tokens(m_, k, *source), b.cross, &source->n)));
      b.f = rms_norm(x, block.feed_forward_norm, m_.epsilon, m_.how, b.feed_forward_norm);  // (T, D)
      accumulate(
          x, all_reduce(feed_forward(b.f, block.feed_forward, m_.how, b.feed_forward, m_.hidden)));  // (T, D)
    }
    k.n = rms_norm(x, w.final_norm, m_.epsilon, m_.how, k.norm);  // (T, D)
  }
  /// d is the gradient of what the stack returned. Returns what it adds to the table's, (V/N, D).
  Sharded<0> read_backward(Side side, Replicated d, MyStackKept& k, const MyStackKept* source,
                           Partial& dsource, Gradients& gradients) {
    const auto& w = w_.stack(side);
    d = norm_backward(*this, t5_name(side, "final_norm"), std::move(d), w.final_norm, m_.how, k.norm,
                      gradients);          // (T, D)
    Tensor dbias(k.bias.local().shape());  // (S S, H/N)   of all blocks
    for (Index b = m_.blocks(side) - 1; b >= 0; --b, k.blocks.pop_back()) {
      const MyBlock& block = w.blocks[static_cast<std::size_t>(b)];
      MyBlockKept& kept = k.blocks.back();
      accumulate(d, think_backward(side, b, d, kept, gradients));
      if (source != nullptr)
        accumulate(d,
                   attend_backward(t5_name(side, b, "cross_"), block.cross, d, source_tokens(m_, k, *source),
                                   kept.cross, &source->n, dsource, nullptr, gradients));
      accumulate(d, attend_backward(t5_name(side, b, "self_"), block.self, d, own_tokens(m_, side, k),
                                    kept.self, nullptr, dsource, &dbias, gradients));
    }
    gradients.put(t5_name(side, "position_bias"),
                  position_bias_backward(dbias, k.buckets, w.position_bias));  // (buckets, H/N)
    return embedding_backward(d, k.tokens, w_.embedding);                      // (V/N, D)
  }

  /// ## An attention
  /// Keys and values are made of `source`, (T_e, D), or of what queries are made of.
  Partial attend(const MyAttention& w, const Replicated& x, const Sight& sight, MyAttentionKept& k,
                 const Replicated* source) {
    k.n = rms_norm(x, w.norm, m_.epsilon, m_.how, k.norm);  // (T, D)
    const Replicated& of_keys = source != nullptr ? *source : k.n;
    k.q = matmul(k.n, w.query);      // (T, H d/N)
    k.k = matmul(of_keys, w.key);    // (T, H d/N)   or (T_e, H d/N)
    k.v = matmul(of_keys, w.value);  // (T, H d/N)   or (T_e, H d/N)
    const auto [keys, values, at] = seen(sight.kept_as, k.k, k.v, sight.at_k);
    k.o = attention(k.q, keys, values, sight.at_q, at, sight.heads, k.softmax);  // (T, H d/N)
    return matmul(k.o, w.output);                                                // (T, D)
  }
  Replicated attend_backward(const std::string& name, const MyAttention& w, const Replicated& d,
                             const Sight& sight, MyAttentionKept& k, const Replicated* source,
                             Partial& dsource, Tensor* dbias, Gradients& gradients) {
    const Replicated& of_keys = source != nullptr ? *source : k.n;
    gradients.put(name + "output", matmul(transposed(k.o), d));  // (H d/N, D)
    auto [dq, dk, dv] = attention_backward(matmul(d, transposed(w.output)), k.o, k.q, k.k, k.v, sight.at_q,
                                           sight.at_k, sight.heads, k.softmax, dbias);
    dq = on_grid(std::move(dq), m_.how);                             // (T, H d/N)
    dk = on_grid(std::move(dk), m_.how);                             // (T, H d/N)   or (T_e, H d/N)
    gradients.put(name + "query", matmul(transposed(k.n), dq));      // (D, H d/N)
    gradients.put(name + "key", matmul(transposed(of_keys), dk));    // (D, H d/N)
    gradients.put(name + "value", matmul(transposed(of_keys), dv));  // (D, H d/N)
    Partial dn = matmul(dq, transposed(w.query));                    // (T, D)
    Partial& dkeys = source != nullptr ? dsource : dn;               // (T_e, D)   or (T, D)
    accumulate(dkeys, matmul(dk, transposed(w.key)));
    accumulate(dkeys, matmul(dv, transposed(w.value)));
    return norm_backward(*this, name + "norm", all_reduce(std::move(dn)), w.norm, m_.how, k.norm, gradients);
  }

  Replicated think_backward(Side side, Index b, const Replicated& d, MyBlockKept& k, Gradients& gradients) {
    const MyBlock& w = w_.stack(side).blocks[static_cast<std::size_t>(b)];
    auto dy = feed_forward_backward(d, k.f, w.feed_forward, m_.how, std::move(k.feed_forward), m_.hidden);
    Replicated dn = all_reduce(std::move(dy.n));  // (T, D)
    put_feed_forward(m_, side, b, std::move(dy), gradients);
    return norm_backward(*this, t5_name(side, b, "feed_forward_norm"), std::move(dn), w.feed_forward_norm,
                         m_.how, k.feed_forward_norm, gradients);
  }

  T5Model m_;
  T5Weights<Sharded<0>, Replicated, Sharded<1>, Sharded<0>> w_;
  Tape<MyKept> tape_;
};

}  // namespace shard::decoders
