#pragma once

/// A decoder whose sequences are divided over the devices: what the variants `context` and `ulysses` share.
/// Each device has all weights and some tokens of every sequence. Everything but attention works on each
/// token by itself, and sends nothing forward. Attention needs other tokens, and each variant says how it gets
/// them. Backward, a weight's gradient is a sum over tokens: each device has an addend, and they are
/// all-reduced.
/// Builds on: 08_decoder/single.hpp, 08_decoder/whole_rows.hpp.

#include "sequence_cut.hpp"
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
  /// The loss is told of each run of tokens that this device has.
  Gradients forward_backward(Tensor input, const LossGradient& loss_gradient) override {
    const SequenceCut cut = cut_of(input);
    Sharded<0> losses = losses_of(input, cut);  // (t, 1)
    Tensor dlosses = gradient_of_losses(losses.local(), cut, device_id(), 0, loss_gradient);
    auto [kept] = tape_.pop();
    return gradients_of(std::move(kept), my_rows(std::move(dlosses), losses));
  }

  /// Alone, the forward pass returns all losses, in the order of the sequences: (T, 1). They are few numbers.
  Placed forward(Tensor input) override {
    const SequenceCut cut = cut_of(input);
    const Replicated losses = all_gather(losses_of(input, cut));  // in device order    S0 → R
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
  Sharded<0> losses_of(const Tensor& input, const SequenceCut& cut) {
    MyKept kept;
    kept.cut = cut;
    kept.tokens = read(input, m_.vocabulary).at(cut.places(device_id()));
    Sharded<0> x = embedding(w_.embedding, kept.tokens.ids, kept.cut.rows(device_id()).begin,
                             kept.cut.all_rows());  // (t, D)
    forget_choices();
    for (Index b = 0; b < m_.num_blocks; ++b) {
      MyBlockKept& k = kept.blocks.emplace_back();
      accumulate(x, attend(b, x, kept, k));
      accumulate(x, feed_forward_block(m_, w_.block(b), x, k));
      note_choice(b, k.mixture.choice, kept.tokens);
    }
    kept.n = rms_norm(x, w_.final_norm, m_.epsilon, m_.how, kept.norm);                 // (t, D)
    Sharded<0> z = scale(matmul(kept.n, transposed(w_.head(m_))), m_.how.logit_scale);  // (t, V)    S0
    show_logits(z.local(), kept.tokens);
    Sharded<0> losses = cross_entropy(std::move(z), kept.tokens, m_.how, kept.softmax);  // (t, 1)
    tape_.push(std::move(kept));
    return losses;
  }

  /// ## Backward
  Gradients gradients_of(MyKept kept, Sharded<0> dlosses) {
    Gradients gradients;
    Sharded<0> dz = cross_entropy_backward(dlosses, kept.tokens, m_.how, std::move(kept.softmax));  // (t, V)
    Partial dhead = matmul(transposed(dz), kept.n);  // (V, D)    S0ᵀ·S0 = P
    Sharded<0> d = matmul(dz, w_.head(m_));          // (t, D)    S0·R = S0
    dz = Sharded<0>();
    d = norm_backward(*this, final_norm_name(), std::move(d), w_.final_norm, m_.how, kept.norm,
                      gradients);  // (t, D)
    for (Index b = m_.num_blocks - 1; b >= 0; --b, kept.blocks.pop_back()) {
      accumulate(d, feed_forward_block_backward(b, d, kept.blocks.back(), gradients));
      accumulate(d, attend_backward(b, d, kept, kept.blocks.back(), gradients));
    }
    Partial dembedding = embedding_backward(d, kept.tokens.ids, m_.vocabulary);  // (V, D)
    if (m_.is_tied)
      accumulate(dembedding, std::move(dhead));  // the table is used twice
    else
      put(head_name(), std::move(dhead), gradients);
    put(embedding_name(), std::move(dembedding), gradients);
    return gradients;
  }

  /// As on one device, but each gradient is reduced as soon as it is there.
  Sharded<0> feed_forward_block_backward(Index b, const Sharded<0>& d, MyBlockKept& k, Gradients& gradients) {
    const auto& w = w_.block(b);
    auto put_feed_forward = [&](std::size_t e, auto of_expert) {
      FeedForward<Partial, Partial> dw{std::move(of_expert.gate), std::move(of_expert.up),
                                       std::move(of_expert.down)};
      for_each_parameter(m_, b, static_cast<Index>(e), dw,
                         [&](const std::string& name, Partial& p) { put(name, std::move(p), gradients); });
    };
    Sharded<0> dn;  // (t, D)
    if (m_.is_mixture()) {
      auto dy = mixture_of_experts_backward(d, w.experts, m_.how, k.mixture);
      for (std::size_t e = 0; e < dy.experts.size(); ++e) put_feed_forward(e, std::move(dy.experts[e]));
      const Sharded<0> dlogits =
          choose_experts_backward(std::move(dy.gates), k.mixture.choice, m_.how);  // (t, E)
      put(block_name(b, "router"), matmul(transposed(k.f), dlogits), gradients);   // (D, E)    P
      dn = std::move(dy.n) + matmul(dlogits, transposed(w.router));
    } else {
      auto dy = feed_forward_backward(d, k.f, w.experts[0], m_.how, std::move(k.feed_forward));
      dn = std::move(dy.n);
      put_feed_forward(0, std::move(dy));
    }
    return norm_backward(*this, block_name(b, "feed_forward_norm"), std::move(dn), w.feed_forward_norm,
                         m_.how, k.feed_forward_norm, gradients);
  }
  /// Attention, with rotary positions.
  Sharded<0> attend(Index b, const Sharded<0>& x, const MyKept& kept, MyBlockKept& k) {
    const auto& w = w_.block(b);
    const Tokens& t = kept.tokens;
    k.n = rms_norm(x, w.attention_norm, m_.epsilon, m_.how, k.attention_norm);              // (t, D)
    Sharded<0> q = rotary(matmul(k.n, w.query), t.sequences, t.positions, rotary_of(m_));   // (t, H d)
    Sharded<0> keys = rotary(matmul(k.n, w.key), t.sequences, t.positions, rotary_of(m_));  // (t, G d)
    k.o =
        attention(b, std::move(q), std::move(keys), matmul(k.n, w.value), kept.cut, k.attention);  // (t, H d)
    return matmul(k.o, w.output);                                                                  // (t, D)
  }
  Sharded<0> attend_backward(Index b, const Sharded<0>& d, const MyKept& kept, MyBlockKept& k,
                             Gradients& gradients) {
    const auto& w = w_.block(b);
    const Tokens& t = kept.tokens;
    put(block_name(b, "output"), matmul(transposed(k.o), d), gradients);  // (H d, D)    S0ᵀ·S0 = P
    auto [dq, dk, dv] = attention_backward(matmul(d, transposed(w.output)), k.o, kept.cut, k.attention);
    dq = rotary_backward(std::move(dq), t.sequences, t.positions, rotary_of(m_));  // (t, H d)
    dk = rotary_backward(std::move(dk), t.sequences, t.positions, rotary_of(m_));  // (t, G d)
    put(block_name(b, "query"), matmul(transposed(k.n), dq), gradients);           // (D, H d)    P
    put(block_name(b, "key"), matmul(transposed(k.n), dk), gradients);             // (D, G d)    P
    put(block_name(b, "value"), matmul(transposed(k.n), dv), gradients);           // (D, G d)    P
    Sharded<0> dn = matmul(dq, transposed(w.query));                               // (t, D)
    accumulate(dn, matmul(dk, transposed(w.key)));
    accumulate(dn, matmul(dv, transposed(w.value)));
    return norm_backward(*this, block_name(b, "attention_norm"), std::move(dn), w.attention_norm, m_.how,
                         k.attention_norm, gradients);
  }

  /// A weight's gradient is reduced by itself, P → R. Frameworks reduce many in one call, a bucket.
  void put(const std::string& name, Partial dw, Gradients& gradients) {
    gradients.put(name, all_reduce(std::move(dw)));
  }

  Weights<WeightsFor<Sharded<0>>, Replicated, Replicated> w_;
  CutSequences cut_;
  Tape<MyKept> tape_;
};

}  // namespace shard::decoders
