#pragma once

/// A decoder whose sequences are divided over the devices: what the variants `context` and `ulysses` share.
/// Each device has all weights and some tokens of every sequence. Everything but attention works on each
/// token by itself, and sends nothing forward. Attention needs other tokens, and each variant says how it
/// gets them. Backward, a weight's gradient is a sum over tokens: each device has an addend, and they are
/// all-reduced.
/// Builds on: 08_decoder/single.hpp, 08_decoder/whole_rows.hpp.

#include "sequence_cut.hpp"
#include "vocabulary_loss.hpp"
#include "whole_rows.hpp"

namespace shard::decoders {

/// `AttentionKept` is what attention keeps of a block for its backward pass. t are the tokens here, of T.
template <class AttentionKept>
class SequenceDecoder : public LanguageModel {
 public:
  SequenceDecoder(Communicator& group, const DecoderModel& model, CutSequences cut)
      : LanguageModel(group), m_(model), cut_(cut) {}

  /// ## What this device owns
  /// All weights.
  void load_checkpoint(const Checkpoint& c) override {
    for_each_parameter(m_, w_, [&](const std::string& name, Replicated& p) { p = load_replicated(c, name); });
  }
  Placement input_layout() const override { return Placement::replicated(); }
  Trainables trainable() override { return trainables(m_, w_); }

  /// ## Training
  /// The gradient of the loss is asked for each run of tokens that this device has.
  Gradients forward_backward(Tensor input, const LossGradient& loss_gradient) override {
    const SequenceCut cut = cut_of(input);
    Sharded<0> losses = my_losses(input, cut);  // (t, 1)
    Tensor dlosses = gradient_of_losses(losses.local(), cut, device_id(), 0, loss_gradient);
    auto [kept] = tape_.pop();
    return gradients_of(std::move(kept), my_rows(std::move(dlosses), losses));
  }

  /// Returns the losses of all tokens, (T, 1), in the order of the sequences. That is one number a token.
  Placed forward(Tensor input) override {
    const SequenceCut cut = cut_of(input);
    const Replicated losses = all_gather(my_losses(input, cut));  // in device order    S0 → R
    Tensor in_order = Tensor::uninitialized(losses.global_shape());
    scatter_rows(losses.local(), cut.rows_in_sequences(), in_order);
    return Replicated(group(), std::move(in_order));
  }
  /// `dlosses` is the gradient of all of them.
  Gradients backward(Tensor dlosses) override {
    auto [kept] = tape_.pop();
    Tensor mine = gather_rows(dlosses, kept.cut.rows_in_sequences(device_id()));  // (t, 1)
    Sharded<0> d(group(), std::move(mine), dlosses.shape(), kept.cut.rows(device_id()).begin);
    return gradients_of(std::move(kept), std::move(d));
  }

 protected:
  /// How the tokens of an input are divided.
  virtual SequenceCut cut_of(const Tensor& input) const {
    SequenceCut cut = cut_(input.extent(0), input.extent(1) / 2, num_devices());
    cut.first_position = next_position();
    return cut;
  }
  /// \name Attention: what a variant defines
  /// q (t, H d), k and v (t, G d), and o (t, H d) are of my tokens. Positions are already turned.
  /// @{
  virtual Sharded<0> attention(Index b, Sharded<0> q, Sharded<0> k, Sharded<0> v, const SequenceCut& cut,
                               AttentionKept& kept) = 0;
  /// dk and dv are sums over the queries of all devices.
  virtual AttentionGradientsOf<Sharded<0>, Sharded<0>> attention_backward(Sharded<0> dout,
                                                                          const Sharded<0>& o,
                                                                          const SequenceCut& cut,
                                                                          AttentionKept& kept) = 0;
  /// @}

  DecoderModel m_;

 private:
  struct MyBlockKept : KeptFor<Sharded<0>> {
    AttentionKept attention;
  };
  struct MyKept : Kept<MyBlockKept, Sharded<0>> {
    SequenceCut cut;
  };

  /// ## Forward
  /// As on one device, on my tokens.
  Sharded<0> my_losses(const Tensor& input, const SequenceCut& cut) {
    MyKept kept;
    kept.cut = cut;
    kept.tokens = read(input, m_.vocabulary).at(cut.places(device_id()));
    Sharded<0> x = embedding(w_.embedding, kept.tokens.ids, kept.cut.rows(device_id()).begin,
                             kept.cut.all_rows());  // (t, D)
    forget_choices();
    for (Index b = 0; b < m_.num_blocks; ++b) {
      MyBlockKept& k = kept.blocks.emplace_back();
      accumulate(x, attend(block_, w_.block(b), x, kept.tokens, k, b, kept.cut));
      accumulate(x, feed_forward_block(block_, w_.block(b), x, k));
      note_choice(b, k.mixture.choice, kept.tokens);
    }
    Sharded<0> losses = losses_of(block_, *this, x, w_.final_norm, w_.head(m_), kept.tokens, kept);  // (t, 1)
    tape_.push(std::move(kept));
    return losses;
  }

  /// ## Backward
  /// A weight's gradient is reduced by itself, as soon as it is there: P → R. Frameworks reduce many in one
  /// call, a bucket.
  Gradients gradients_of(MyKept kept, Sharded<0> dlosses) {
    Gradients gradients;
    Partial dhead;  // (V, D)
    Sharded<0> d = losses_backward(block_, dlosses, w_.final_norm, w_.head(m_), kept.tokens, kept, dhead,
                                   by_name(*this, m_, gradients));  // (t, D)
    for (Index b = m_.num_blocks - 1; b >= 0; --b, kept.blocks.pop_back()) {
      const auto put = by_name(*this, m_, gradients, b);
      accumulate(d, feed_forward_block_backward(block_, w_.block(b), d, kept.blocks.back(), put));
      accumulate(d, attend_backward(block_, w_.block(b), d, kept.tokens, kept.blocks.back(), put, kept.cut));
    }
    Partial dembedding = embedding_backward(d, kept.tokens.ids, m_.vocabulary);  // (V, D)
    put_tables(m_, std::move(dembedding), std::move(dhead), by_name(*this, m_, gradients));
    return gradients;
  }

  /// A block is as on one device, but for attention (decoder_block.hpp).
  struct OnMyTokens : OnWholeRows<Sharded<0>> {
    SequenceDecoder& engine;

    Sharded<0> attention(const Tokens&, MyBlockKept& k, Index b, const SequenceCut& cut) const {
      return engine.attention(b, std::move(k.q), std::move(k.k), std::move(k.v), cut, k.attention);
    }
    AttentionGradientsOf<Sharded<0>, Sharded<0>> attention_backward(Sharded<0> dout, const Tokens&,
                                                                    MyBlockKept& k,
                                                                    const SequenceCut& cut) const {
      return engine.attention_backward(std::move(dout), k.o, cut, k.attention);
    }
  };

  OnMyTokens block_{{m_}, *this};
  Weights<WeightsFor<Sharded<0>>, Replicated, Replicated> w_;
  CutSequences cut_;
  Tape<MyKept> tape_;
};

}  // namespace shard::decoders
