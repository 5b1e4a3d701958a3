#pragma once

///     ./chapters/run 08 train --variant single
///
/// A decoder on one device: embedding, blocks of attention and a feed-forward, and the loss of the next
/// token. Nothing is divided. The other engines of this chapter divide what this file computes, with the same
/// block (decoder_block.hpp). With more devices, each does the same work on the same data.

#include "vocabulary_loss.hpp"
#include "whole_rows.hpp"

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
    MyKept kept{.tokens = read(input, m_.vocabulary)};        // T = B S of them
    Replicated x = embedding(w_.embedding, kept.tokens.ids);  // (T, D)
    forget_choices();
    for (Index b = 0; b < m_.num_blocks; ++b) {
      auto& k = kept.blocks.emplace_back();
      accumulate(x, attend(block_, w_.block(b), x, kept.tokens, k, cache(), b));
      accumulate(x, feed_forward_block(block_, w_.block(b), x, k));
      if (device_id() == 0) note_choice(b, k.mixture.choice, kept.tokens);
    }
    Replicated losses = losses_of(block_, *this, x, w_.final_norm, w_.head(m_), kept.tokens, kept);  // (T, 1)
    tape_.push(std::move(kept));
    return losses;
  }

  /// ## Backward
  /// d is the gradient of the residual stream. What comes back through the norm of each part is added to it.
  Gradients backward(Tensor dloss) override {
    auto [kept] = tape_.pop();
    Gradients gradients;
    const Replicated dlosses(group(), std::move(dloss));  // (T, 1)
    Replicated dhead;                                     // (V, D)
    Replicated d = losses_backward(block_, dlosses, w_.final_norm, w_.head(m_), kept.tokens, kept, dhead,
                                   by_name(*this, m_, gradients));  // (T, D)
    for (Index b = m_.num_blocks - 1; b >= 0; --b, kept.blocks.pop_back()) {
      const auto put = by_name(*this, m_, gradients, b);
      accumulate(d, feed_forward_block_backward(block_, w_.block(b), d, kept.blocks.back(), put));
      accumulate(d, attend_backward(block_, w_.block(b), d, kept.tokens, kept.blocks.back(), put));
    }
    Replicated dembedding = embedding_backward(d, kept.tokens.ids, m_.vocabulary);  // (V, D)
    put_tables(m_, std::move(dembedding), std::move(dhead), by_name(*this, m_, gradients));
    return gradients;
  }

  Placement input_layout() const override { return Placement::replicated(); }
  Trainables trainable() override { return trainables(m_, w_); }

 private:
  using MyKept = Kept<KeptFor<Replicated>, Replicated>;

  DecoderModel m_;
  OnWholeRows<Replicated> block_{m_};
  Weights<WeightsFor<Replicated>, Replicated, Replicated> w_;
  Tape<MyKept> tape_;
};

}  // namespace shard::decoders
