#pragma once

/// A decoder whose sequences are divided over the devices: what the variants `context` and `ulysses` share.
/// Each device has all weights and some tokens of every sequence. Norms, products, gates, experts and the loss
/// work on each token by itself, so they send nothing. Only attention needs other tokens: each variant says
/// how. Weights' gradients are sums over tokens, so each device has an addend, and they are all-reduced.
/// Builds on: 08_decoder/single.hpp.

#include "blocks.hpp"
#include "sequence_cut.hpp"

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
  Trainables trainable() override {
    Trainables all;
    for_each_parameter(m_, w_, [&](const std::string& name, Replicated& p) { all.add(name, p); });
    return all;
  }

  /// ## Training
  /// The loss is told of each run of tokens that this device has.
  Gradients forward_backward(Tensor input, const LossGradient& loss_gradient) override {
    Sharded<0> losses = losses_of(input);  // (t, 1)
    Tensor dlosses(losses.local().shape());
    const SequenceCut cut = cut_of(input);
    Index row = 0;
    for (Index b = 0; b < cut.sequences; ++b)
      for (const Range& run : cut.runs_of(device_id())) {
        const Tensor piece = slice(losses.local(), 0, row, row + run.size());
        assign(Rows(dlosses, row, row + run.size()), loss_gradient(piece, b * cut.length + run.begin));
        row += run.size();
      }
    auto [kept] = tape_.pop();
    return gradients_of(std::move(kept), my_rows(std::move(dlosses), losses));
  }

  /// Alone, the forward pass returns all losses, in the order of the sequences: (T, 1). They are few numbers.
  Placed forward(Tensor input) override {
    const Replicated losses = all_gather(losses_of(input));  // in device order    S0 → R
    Tensor in_order = Tensor::uninitialized(losses.global_shape());
    scatter_rows(losses.local(), rows_in_sequences(cut_of(input)), in_order);
    return Replicated(group(), std::move(in_order));
  }
  /// `dlosses` is the gradient of all of them.
  Gradients backward(Tensor dlosses) override {
    auto [kept] = tape_.pop();
    const std::vector<Index> mine = kept.cut.rows_in_sequences(device_id());
    Sharded<0> d(group(), gather_rows(dlosses, mine), dlosses.shape(), kept.cut.rows(device_id()).begin);
    return gradients_of(std::move(kept), std::move(d));
  }

 protected:
  /// \name Attention: what a variant defines
  /// q (t, H d), k and v (t, G d), and o (t, H d) are of my tokens. Positions are already turned.
  /// @{
  virtual Sharded<0> attention(Sharded<0> q, Sharded<0> k, Sharded<0> v, const SequenceCut& cut,
                               AttentionKept& kept) = 0;
  /// dk and dv are sums over the queries of all devices.
  virtual AttentionGradientsOf<Sharded<0>, Sharded<0>> attention_backward(Sharded<0> dout,
                                                                          const Sharded<0>& o,
                                                                          const SequenceCut& cut,
                                                                          AttentionKept& kept) = 0;
  /// @}

  const DecoderModel& model() const { return m_; }

 private:
  using MyBlock = Block<Replicated, Replicated, Replicated, Replicated>;
  struct MyBlockKept {
    Normed attention_norm, feed_forward_norm;
    Sharded<0> n;  // (t, D)     what attention reads
    AttentionKept attention;
    Sharded<0> o;  // (t, H d)
    Sharded<0> f;  // (t, D)     what the feed-forward reads
    FeedForwardKept<Sharded<0>> feed_forward;
    MixtureKept<Sharded<0>, Replicated, Sharded<0>> mixture;
  };
  struct MyKept : Kept<MyBlockKept, Sharded<0>> {
    SequenceCut cut;
  };

  SequenceCut cut_of(const Tensor& input) const {
    return cut_(input.extent(0), input.extent(1) / 2, num_devices());
  }
  /// For each row in device order: its row in a tensor of whole sequences.
  static std::vector<Index> rows_in_sequences(const SequenceCut& cut) {
    std::vector<Index> rows;
    for (int d = 0; d < cut.devices(); ++d)
      std::ranges::copy(cut.rows_in_sequences(d), std::back_inserter(rows));
    return rows;
  }

  /// ## Forward
  /// As on one device, on my tokens.
  Sharded<0> losses_of(const Tensor& input) {
    MyKept kept;
    kept.cut = cut_of(input);
    kept.tokens = Tokens::read(input, m_.vocabulary).at(kept.cut.places(device_id()));
    Sharded<0> x = embedding(w_.embedding, kept.tokens, kept.cut.rows(device_id()).begin,
                             kept.cut.all_rows());  // (t, D)
    for (const MyBlock& block : w_.blocks) {
      MyBlockKept& k = kept.blocks.emplace_back();
      accumulate(x, attend(block, x, kept, k));
      accumulate(x, think(block, x, k));
    }
    kept.n = rms_norm(x, w_.final_norm, m_.epsilon, m_.how, kept.norm);                 // (t, D)
    Sharded<0> z = scale(matmul(kept.n, transposed(w_.head(m_))), m_.how.logit_scale);  // (t, V)    S0·R = S0
    this->show_logits(z.local(), kept.tokens);
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
    d = norm_backward(final_norm_name(), std::move(d), w_.final_norm, kept.norm, gradients);  // (t, D)
    for (Index b = m_.num_blocks - 1; b >= 0; --b, kept.blocks.pop_back()) {
      accumulate(d, think_backward(b, d, kept.blocks.back(), gradients));
      accumulate(d, attend_backward(b, d, kept, kept.blocks.back(), gradients));
    }
    Partial dembedding = embedding_backward(d, kept.tokens, m_.vocabulary);  // (V, D)
    if (m_.is_tied)
      accumulate(dembedding, std::move(dhead));  // the table is used twice
    else
      put(head_name(), std::move(dhead), gradients);
    put(embedding_name(), std::move(dembedding), gradients);
    return gradients;
  }

  /// A weight's gradient is reduced by itself, P → R. Frameworks reduce many in one call, a bucket.
  void put(const std::string& name, Partial dw, Gradients& gradients) {
    gradients.put(name, all_reduce(std::move(dw)));
  }

  /// Attention, with rotary positions.
  Sharded<0> attend(const MyBlock& w, const Sharded<0>& x, const MyKept& kept, MyBlockKept& k) {
    const Tokens& t = kept.tokens;
    k.n = rms_norm(x, w.attention_norm, m_.epsilon, m_.how, k.attention_norm);                    // (t, D)
    Sharded<0> q = rotary(matmul(k.n, w.query), t.sequences, t.positions, rotary_of(m_));         // (t, H d)
    Sharded<0> keys = rotary(matmul(k.n, w.key), t.sequences, t.positions, rotary_of(m_));        // (t, G d)
    k.o = attention(std::move(q), std::move(keys), matmul(k.n, w.value), kept.cut, k.attention);  // (t, H d)
    return matmul(k.o, w.output);                                                                 // (t, D)
  }
  Sharded<0> attend_backward(Index b, const Sharded<0>& d, const MyKept& kept, MyBlockKept& k,
                             Gradients& gradients) {
    const MyBlock& w = w_.blocks[static_cast<std::size_t>(b)];
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
    return norm_backward(block_name(b, "attention_norm"), std::move(dn), w.attention_norm, k.attention_norm,
                         gradients);
  }

  /// The feed-forward, or the experts that the router chooses. Each device has all experts.
  Sharded<0> think(const MyBlock& w, const Sharded<0>& x, MyBlockKept& k) const {
    k.f = rms_norm(x, w.feed_forward_norm, m_.epsilon, m_.how, k.feed_forward_norm);        // (t, D)
    if (!m_.is_mixture()) return feed_forward(k.f, w.experts[0], m_.how, k.feed_forward);   // (t, D)
    ExpertChoice choice = choose_experts(matmul(k.f, w.router).local(), m_.top_k, m_.how);  // of (t, E)
    return mixture_of_experts(k.f, std::move(choice), w.experts, m_.how, k.mixture);        // (t, D)
  }
  Sharded<0> think_backward(Index b, const Sharded<0>& d, MyBlockKept& k, Gradients& gradients) {
    const MyBlock& w = w_.blocks[static_cast<std::size_t>(b)];
    Sharded<0> dn;
    if (m_.is_mixture()) {
      auto dy = mixture_of_experts_backward(d, w.experts, m_.how, k.mixture);
      for (std::size_t e = 0; e < dy.experts.size(); ++e) put(b, e, std::move(dy.experts[e]), gradients);
      const Sharded<0> dlogits = my_rows(
          choose_experts_backward(std::move(dy.gates).local(), k.mixture.choice, m_.how), d);  // (t, E)
      put(block_name(b, "router"), matmul(transposed(k.f), dlogits), gradients);               // (D, E)    P
      dn = std::move(dy.n) + matmul(dlogits, transposed(w.router));                            // (t, D)
    } else {
      auto dy = feed_forward_backward(d, k.f, w.experts[0], m_.how, std::move(k.feed_forward));
      dn = std::move(dy.n);
      put(b, 0, std::move(dy), gradients);
    }
    return norm_backward(block_name(b, "feed_forward_norm"), std::move(dn), w.feed_forward_norm,
                         k.feed_forward_norm, gradients);
  }

  Sharded<0> norm_backward(const std::string& name, Sharded<0> dy, const Replicated& w, const Normed& kept,
                           Gradients& gradients) {
    Partial dw;  // (D)
    Sharded<0> dx = rms_norm_backward(std::move(dy), w, m_.how, kept, dw);
    put(name, std::move(dw), gradients);
    return dx;
  }
  template <class D>
  void put(Index b, std::size_t e, D d, Gradients& gradients) {
    const auto expert = static_cast<Index>(e);
    put(feed_forward_name(m_, b, expert, "gate"), std::move(d.gate), gradients);  // (D, F)    P
    put(feed_forward_name(m_, b, expert, "up"), std::move(d.up), gradients);      // (D, F)    P
    put(feed_forward_name(m_, b, expert, "down"), std::move(d.down), gradients);  // (F, D)    P
  }

  DecoderModel m_;
  CutSequences cut_;
  Weights<MyBlock, Replicated, Replicated> w_;
  Tape<MyKept> tape_;
};

}  // namespace shard::decoders
