#pragma once

///     ./chapters/run 09 -n 4 train --variant decoder-data-tensor --mesh data=2,tensor=2 --batch 8 --steps 20
///
/// A decoder, data parallel and tensor parallel at once. The sequences of the batch are divided over the axis
/// data. Along the axis tensor, N devices do with their sequences what tensor parallel does in chapter 08.
/// Gradients of weights are addends over data, and all-reduced there: those of the whole norms, too.
/// Builds on: 08_decoder/tensor.hpp, 09_mesh/data_tensor.hpp.

#include "decoder_blocks.hpp"

namespace shard::meshes {

/// K: how keys and values lie over tensor (decoder_blocks.hpp).
template <class K>
class DecoderDataTensor : public MeshDecoder {
 public:
  DecoderDataTensor(Communicator& group, const MeshShape& shape, const DecoderModel& model)
      : MeshEngine(group, shape), m_(model), parts_(*this, model) {}

  /// ## What this device owns
  /// Some heads, some hidden units of each feed-forward or expert, and some rows of the vocabulary, over
  /// tensor. Over data, each device has the same.
  void load_checkpoint(const Checkpoint& c) override {
    for_each_parameter(
        m_, w_, [&]<class... L>(const std::string& name, OnDataTensor<L...>& p) { p = load<L...>(c, name); });
  }

  /// ## Forward
  /// The residual stream x is the same on the devices along tensor. Nothing is sent over data.
  Placed forward(Tensor input) override {
    const On<S<0>, R> sequences = from_outside<S<0>, R>(std::move(input));  // (b, 2 S)
    MyKept kept{placed(tokens_of(sequences, m_))};                          // T = b S of them
    kept.all_sequences = sequences.global_shape()[0];
    const Index rows = kept.all_sequences * kept.tokens.length;
    TokenRows x = all_reduce<tensor>(embedding(w_.embedding, kept.tokens, rows));  // (T, D)   P → R
    forget_choices();
    for (Index b = 0; b < m_.num_blocks; ++b) {
      auto& k = kept.blocks.emplace_back();
      accumulate(x, all_reduce<tensor>(parts_.attend(b, w_.block(b), x, kept.tokens, k, cache())));
      accumulate(x, all_reduce<tensor>(parts_.think(w_.block(b), x, k)));  // (W0, P) → (W0, R)
      if (mesh().place(tensor::name) == 0) note_choice(b, k.mixture.choice, kept.tokens);
    }
    kept.n = rms_norm(x, w_.final_norm, m_.epsilon, m_.how, kept.norm);  // (T, D)
    On<W<0>, S<1>> z = scale(matmul(kept.n, transposed(w_.head(m_))),
                             m_.how.logit_scale);  // (T, V/N)   (W0, R)·(R, S0)ᵀ = (W0, S1)
    show_logits(z.local(), kept.tokens, z.ranges()[1].begin);
    TokenRows losses = cross_entropy(std::move(z), kept.tokens, m_.how, kept.softmax);  // (T, 1)
    tape_.push(std::move(kept));
    return losses;
  }

  /// ## Backward
  /// A block's gradients are complete over tensor when the block is done. Then each is summed over data.
  Gradients backward(Tensor dloss) override {
    auto [kept] = tape_.pop();
    mesh().keep_whole(data::name, kept.all_sequences);
    Gradients gradients;
    const TokenRows dlosses = from_outside<W<0>, R>(std::move(dloss));  // (T, 1)
    On<W<0>, S<1>> dz = cross_entropy_backward(dlosses, m_.vocabulary, kept.tokens, m_.how,
                                               std::move(kept.softmax));  // (T, V/N)
    VocabularyAddend dhead = matmul(transposed(dz), kept.n);    // (V/N, D)   (W0, S1)ᵀ·(W0, R) = (P, S0)
    TokenRows d = all_reduce<tensor>(matmul(dz, w_.head(m_)));  // (T, D)     (W0, P) → (W0, R)
    dz = {};
    On<P, R> dnorm;  // (D)
    d = rms_norm_backward(std::move(d), w_.final_norm, m_.how, kept.norm, dnorm);
    put(final_norm_name(), std::move(dnorm), gradients);
    for (Index b = m_.num_blocks - 1; b >= 0; --b, kept.blocks.pop_back()) {
      typename Parts::Gradients g;
      accumulate(d, parts_.think_backward(w_.block(b), d, kept.blocks.back(), g));
      accumulate(d, parts_.attend_backward(w_.block(b), d, kept.tokens, kept.blocks.back(), g));
      for_each_parameter(m_, b, g,
                         [&](const std::string& name, auto& p) { put(name, std::move(p), gradients); });
    }
    VocabularyAddend dembedding = embedding_backward(d, kept.tokens, m_.vocabulary);  // (V/N, D)
    if (m_.is_tied)
      accumulate(dembedding, std::move(dhead));
    else
      put(head_name(), std::move(dhead), gradients);
    put(embedding_name(), std::move(dembedding), gradients);
    return gradients;
  }

  Placement input_layout() const override { return placement<S<0>, R>(); }
  Trainables trainable() override { return decoders::trainables(m_, w_); }

 private:
  using Parts = DecoderParts<K>;
  struct MyKept : decoders::Kept<typename Parts::Kept, TokenRows> {
    Index all_sequences = 0;  // B
  };

  /// Over data: P → R.
  template <class Addend>
  void put(const std::string& name, Addend dw, Gradients& gradients) {
    gradients.put(name, all_reduce<data>(std::move(dw)));
  }

  DecoderModel m_;
  decoders::Weights<typename Parts::Weights, Vocabulary, On<R, R>> w_;
  Parts parts_;
  Tape<MyKept> tape_;
};

}  // namespace shard::meshes
