#pragma once

///     ./chapters/run 08 train --variant single
///
/// A decoder on one device: embedding, blocks of attention and a feed-forward, and the loss of the next token.
/// Nothing is divided. The other engines of this chapter divide what this file computes. With more devices,
/// each does the same work on the same data.

#include "blocks.hpp"

namespace shard::decoders {

class SingleDecoder : public LanguageModel {
 public:
  SingleDecoder(Communicator& group, const DecoderModel& model) : LanguageModel(group), m_(model) {}

  /// ## What this device owns
  /// Everything.
  void load_checkpoint(const Checkpoint& c) override {
    for_each_parameter(m_, w_, [&](const std::string& name, Replicated& p) { p = load_replicated(c, name); });
  }

  /// ## Forward
  /// x is the residual stream: each part of a block reads it through a norm, and adds to it.
  Placed forward(Tensor input) override {
    MyKept kept{.tokens = read(input, m_.vocabulary)};    // T = B S of them
    Replicated x = embedding(w_.embedding, kept.tokens.ids);  // (T, D)
    forget_choices();
    for (Index b = 0; b < m_.num_blocks; ++b) {
      MyBlockKept& k = kept.blocks.emplace_back();
      accumulate(x, attend(b, x, kept.tokens, k));
      accumulate(x, feed_forward_block(b, x, k));
      if (device_id() == 0) note_choice(b, k.mixture.choice, kept.tokens);
    }
    kept.n = rms_norm(x, w_.final_norm, m_.epsilon, m_.how, kept.norm);                 // (T, D)
    Replicated z = scale(matmul(kept.n, transposed(w_.head(m_))), m_.how.logit_scale);  // (T, V)
    show_logits(z.local(), kept.tokens);
    Replicated losses = cross_entropy(std::move(z), kept.tokens, m_.how, kept.softmax);  // (T, 1)
    tape_.push(std::move(kept));
    return losses;
  }

  /// ## Backward
  /// d is the gradient of the residual stream. What comes back through the norm of each part is added to it.
  Gradients backward(Tensor dloss) override {
    auto [kept] = tape_.pop();
    Gradients gradients;
    const Replicated dlosses(group(), std::move(dloss));                                            // (T, 1)
    Replicated dz = cross_entropy_backward(dlosses, kept.tokens, m_.how, std::move(kept.softmax));  // (T, V)
    Replicated dhead = matmul(transposed(dz), kept.n);                                              // (V, D)
    Replicated d = matmul(dz, w_.head(m_));                                                         // (T, D)
    dz = Replicated();
    d = norm_backward(*this, final_norm_name(), std::move(d), w_.final_norm, m_.how, kept.norm,
                      gradients);  // (T, D)
    for (Index b = m_.num_blocks - 1; b >= 0; --b, kept.blocks.pop_back()) {
      accumulate(d, feed_forward_block_backward(b, d, kept.blocks.back(), gradients));
      accumulate(d, attend_backward(b, d, kept.tokens, kept.blocks.back(), gradients));
    }
    Replicated dembedding = embedding_backward(d, kept.tokens.ids, m_.vocabulary);  // (V, D)
    put_tables(m_, std::move(dembedding), std::move(dhead), gradients);
    return gradients;
  }

  Placement input_layout() const override { return Placement::replicated(); }
  Trainables trainable() override { return trainables(m_, w_); }

 private:
  using MyBlock = Block<Replicated, Replicated, Replicated, Replicated>;
  using MyBlockKept = BlockKept<Replicated, Replicated, Replicated, Replicated>;
  using MyKept = Kept<MyBlockKept, Replicated>;

  /// Attention, with rotary positions.
  Replicated attend(Index b, const Replicated& x, const Tokens& t, MyBlockKept& k) {
    const MyBlock& w = w_.block(b);
    k.n = rms_norm(x, w.attention_norm, m_.epsilon, m_.how, k.attention_norm);    // (T, D)
    k.q = rotary(matmul(k.n, w.query), t.sequences, t.positions, rotary_of(m_));  // (T, H d)
    k.k = rotary(matmul(k.n, w.key), t.sequences, t.positions, rotary_of(m_));    // (T, G d)
    k.v = matmul(k.n, w.value);                                                   // (T, G d)
    const auto [keys, values, at] = seen(b, k.k, k.v, t.positions);
    k.o = attention(k.q, keys, values, t.positions, at, all_heads(m_, t.sequences), k.softmax);  // (T, H d)
    return matmul(k.o, w.output);                                                                // (T, D)
  }
  Replicated attend_backward(Index b, const Replicated& d, const Tokens& t, MyBlockKept& k,
                             Gradients& gradients) {
    const MyBlock& w = w_.block(b);
    gradients.put(block_name(b, "output"), matmul(transposed(k.o), d));  // (H d, D)
    auto [dq, dk, dv] = attention_backward(matmul(d, transposed(w.output)), k.o, k.q, k.k, k.v, t.positions,
                                           all_heads(m_, t.sequences), k.softmax);
    dq = rotary_backward(std::move(dq), t.sequences, t.positions, rotary_of(m_));  // (T, H d)
    dk = rotary_backward(std::move(dk), t.sequences, t.positions, rotary_of(m_));  // (T, G d)
    gradients.put(block_name(b, "query"), matmul(transposed(k.n), dq));            // (D, H d)
    gradients.put(block_name(b, "key"), matmul(transposed(k.n), dk));              // (D, G d)
    gradients.put(block_name(b, "value"), matmul(transposed(k.n), dv));            // (D, G d)
    Replicated dn = matmul(dq, transposed(w.query));                               // (T, D)
    accumulate(dn, matmul(dk, transposed(w.key)));
    accumulate(dn, matmul(dv, transposed(w.value)));
    return norm_backward(*this, block_name(b, "attention_norm"), std::move(dn), w.attention_norm, m_.how,
                         k.attention_norm, gradients);
  }

  /// The feed-forward, or the experts that the router chooses.
  Replicated feed_forward_block(Index b, const Replicated& x, MyBlockKept& k) const {
    const MyBlock& w = w_.block(b);
    k.f = rms_norm(x, w.feed_forward_norm, m_.epsilon, m_.how, k.feed_forward_norm);        // (T, D)
    if (!m_.is_mixture()) return feed_forward(k.f, w.experts[0], m_.how, k.feed_forward);   // (T, D)
    ExpertChoice choice = choose_experts(matmul(k.f, w.router).local(), m_.top_k, m_.how);  // of (T, E)
    return mixture_of_experts(k.f, std::move(choice), w.experts, m_.how, k.mixture);        // (T, D)
  }
  Replicated feed_forward_block_backward(Index b, const Replicated& d, MyBlockKept& k, Gradients& gradients) {
    const MyBlock& w = w_.block(b);
    Replicated dn;
    if (m_.is_mixture()) {
      auto dy = mixture_of_experts_backward(d, w.experts, m_.how, k.mixture);
      for (std::size_t e = 0; e < dy.experts.size(); ++e)
        put_expert(m_, b, e, std::move(dy.experts[e]), gradients);
      const Replicated dlogits(
          group(), choose_experts_backward(std::move(dy.gates).local(), k.mixture.choice, m_.how));  // (T, E)
      gradients.put(block_name(b, "router"), matmul(transposed(k.f), dlogits));                      // (D, E)
      dn = std::move(dy.n) + matmul(dlogits, transposed(w.router));                                  // (T, D)
    } else {
      auto dy = feed_forward_backward(d, k.f, w.experts[0], m_.how, std::move(k.feed_forward));
      dn = std::move(dy.n);
      put_expert(m_, b, 0, std::move(dy), gradients);
    }
    return norm_backward(*this, block_name(b, "feed_forward_norm"), std::move(dn), w.feed_forward_norm,
                         m_.how, k.feed_forward_norm, gradients);
  }

  DecoderModel m_;
  Weights<MyBlock, Replicated, Replicated> w_;
  Tape<MyKept> tape_;
};

}  // namespace shard::decoders
