#pragma once

///     ./chapters/run 09 -n 4 train --variant decoder-fsdp-tensor --mesh data=2,tensor=2 --batch 8 --steps 20
///
/// A decoder, fully sharded and tensor parallel at once. Over tensor, weights are divided as in
/// decoder_data_tensor.hpp. Over data they are divided along their other dimension: queries are (S0, W1), and
/// the weights behind attention (S1, W0). So no two axes cut one dimension. Norms and routers, which tensor
/// does not cut, are (S0, R): they are small, but so every gradient takes the same way. A block is a unit: its
/// weights are gathered over data before it computes, and freed after it. M devices lie along data, N along
/// tensor.
/// Builds on: 09_mesh/decoder_data_tensor.hpp, 09_mesh/fsdp_tensor.hpp, 08_decoder/fsdp.hpp.

#include "decoder_blocks.hpp"

namespace shard::meshes {

/// K: how keys and values lie over tensor (decoder_blocks.hpp).
template <class K>
class DecoderFsdpTensor : public MeshDecoder {
 public:
  DecoderFsdpTensor(Communicator& group, const MeshShape& shape, const DecoderModel& model)
      : MeshEngine(group, shape), m_(model), parts_(*this, model) {}

  /// ## What this device owns
  /// Of its part over tensor, 1/M. A device may own nothing of a small parameter.
  void load_checkpoint(const Checkpoint& c) override {
    for_each_parameter(m_, shards_, [&]<class... L>(const std::string& name, OnDataTensor<L...>& p) {
      p = load<L...>(c, name);
    });
  }

  /// ## Forward
  /// Units are the embedding, each block, and the last norm with the head. This last unit stays for the
  /// backward pass, which begins with it.
  Placed forward(Tensor input) override {
    const On<S<0>, R> sequences = from_outside<S<0>, R>(std::move(input));  // (b, 2 S)
    MyKept kept{placed(tokens_of(sequences, m_))};                          // T = b S of them
    kept.all_sequences = sequences.global_shape()[0];
    const Index rows = kept.all_sequences * kept.tokens.length;
    Vocabulary table = all_gather<data>(shards_.embedding);                 // (V/N, D)   (S1, S0) → (R, S0)
    TokenRows x = all_reduce<tensor>(embedding(table, kept.tokens, rows));  // (T, D)     (W0, P) → (W0, R)
    table = {};
    forget_choices();
    for (Index b = 0; b < m_.num_blocks; ++b) {
      auto& k = kept.blocks.emplace_back();
      const typename Parts::Weights w = gathered(b);
      accumulate(x, all_reduce<tensor>(parts_.attend(b, w, x, kept.tokens, k, cache())));
      accumulate(x, all_reduce<tensor>(parts_.think(w, x, k)));  // (W0, P) → (W0, R)
      if (mesh().place(tensor::name) == 0) note_choice(b, k.mixture.choice, kept.tokens);
    }
    kept.final_norm = all_gather<data>(shards_.final_norm);                // (D)        (S0, R) → (R, R)
    kept.head = all_gather<data>(shards_.head(m_));                        // (V/N, D)   (S1, S0) → (R, S0)
    kept.n = rms_norm(x, kept.final_norm, m_.epsilon, m_.how, kept.norm);  // (T, D)
    On<W<0>, S<1>> z = scale(matmul(kept.n, transposed(kept.head)), m_.how.logit_scale);  // (T, V/N)
    show_logits(z.local(), kept.tokens, z.ranges()[1].begin);
    TokenRows losses = cross_entropy(std::move(z), kept.tokens, m_.how, kept.softmax);  // (T, 1)
    tape_.push(std::move(kept));
    return losses;
  }

  /// ## Backward
  /// A block's gradients are complete over tensor when the block is done. Then each is reduced over data, and
  /// this device gets its part of the sum.
  Gradients backward(Tensor dloss) override {
    auto [kept] = tape_.pop();
    mesh().keep_whole(data::name, kept.all_sequences);
    Gradients gradients;
    const TokenRows dlosses = from_outside<W<0>, R>(std::move(dloss));  // (T, 1)
    On<W<0>, S<1>> dz = cross_entropy_backward(dlosses, m_.vocabulary, kept.tokens, m_.how,
                                               std::move(kept.softmax));  // (T, V/N)
    VocabularyAddend dtable = matmul(transposed(dz), kept.n);  // (V/N, D)   (W0, S1)ᵀ·(W0, R) = (P, S0)
    TokenRows d = all_reduce<tensor>(matmul(dz, kept.head));   // (T, D)     (W0, P) → (W0, R)
    dz = {}, kept.head = {};
    On<P, R> dnorm;  // (D)
    d = rms_norm_backward(std::move(d), kept.final_norm, m_.how, kept.norm, dnorm);
    put(final_norm_name(), std::move(dnorm), gradients);
    if (!m_.is_tied) put(head_name(), std::exchange(dtable, {}), gradients);
    for (Index b = m_.num_blocks - 1; b >= 0; --b, kept.blocks.pop_back()) {
      typename Parts::Weights w = gathered(b);
      typename Parts::Gradients g;
      accumulate(d, parts_.think_backward(w, d, kept.blocks.back(), g));
      accumulate(d, parts_.attend_backward(w, d, kept.tokens, kept.blocks.back(), g));
      w = {};  // freed
      for_each_parameter(m_, b, g,
                         [&](const std::string& name, auto& p) { put(name, std::move(p), gradients); });
    }
    accumulate(dtable, embedding_backward(d, kept.tokens, m_.vocabulary));
    put(embedding_name(), std::move(dtable), gradients);
    return gradients;
  }

  Placement input_layout() const override { return placement<S<0>, R>(); }

  /// ## The step
  /// Parameters, gradients and state are divided alike, so nothing is gathered after the step.
  Trainables trainable() override { return decoders::trainables(m_, shards_); }

 private:
  using Parts = DecoderParts<K>;
  struct MyKept : decoders::Kept<typename Parts::Kept, TokenRows> {
    Index all_sequences = 0;  // B
    On<R, R> final_norm{};    // (D)
    Vocabulary head{};        // (V/N, D)
  };

  /// A block's weights, whole over data.
  typename Parts::Weights gathered(Index b) {
    const auto& s = shards_.block(b);
    typename Parts::Weights w;
    w.attention_norm = all_gather<data>(s.attention_norm);        // (D)          (S0, R)  → (R, R)
    w.query = all_gather<data>(s.query);                          // (D, H d/N)   (S0, W1) → (R, W1)
    w.key = all_gather<data>(s.key);                              // (D, G d/N)   or all
    w.value = all_gather<data>(s.value);                          // (D, G d/N)   or all
    w.output = all_gather<data>(s.output);                        // (H d/N, D)   (S1, W0) → (R, W0)
    w.feed_forward_norm = all_gather<data>(s.feed_forward_norm);  // (D)          (S0, R)  → (R, R)
    if (m_.is_mixture()) w.router = all_gather<data>(s.router);   // (D, E)       (S0, R)  → (R, R)
    for (const auto& e : s.experts) {
      auto& whole = w.experts.emplace_back();
      whole.gate = all_gather<data>(e.gate);  // (D, F/N)   (S0, S1) → (R, S1)
      whole.up = all_gather<data>(e.up);      // (D, F/N)   (S0, S1) → (R, S1)
      whole.down = all_gather<data>(e.down);  // (F/N, D)   (S1, S0) → (R, S0)
    }
    return w;
  }

  /// Over data: P → S, along the dimension that tensor does not cut.
  template <class L>
  void put(const std::string& name, On<P, L> dw, Gradients& gradients) {
    constexpr int dimension = detail::axis_of<L> == 0 ? 1 : 0;
    gradients.put(name, reduce_scatter<data, dimension>(std::move(dw)));
  }

  DecoderModel m_;
  decoders::Weights<BlockOver<S<0>, K, S<1>>, On<S<1>, S<0>>, On<S<0>, R>> shards_;
  Parts parts_;
  Tape<MyKept> tape_;
};

}  // namespace shard::meshes
