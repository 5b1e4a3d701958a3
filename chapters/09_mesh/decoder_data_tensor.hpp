#pragma once

///     ./chapters/run 09 -n 4 train --variant decoder-data-tensor --mesh data=2,tensor=2 --batch 8 --steps 20
///     ./chapters/run 09 -n 4 train --variant decoder-fsdp-tensor --mesh data=2,tensor=2 --batch 8 --steps 20
///
/// A decoder, data parallel and tensor parallel at once. The sequences of the batch are divided over the axis
/// data. Along the axis tensor, N devices do with their sequences what tensor parallel does in chapter 08.
/// Gradients of weights are addends over data, and all-reduced there: those of the whole norms, too.
///
/// Fully sharded, weights are also divided over data, along their other dimension: queries are (S0, W1), and
/// the weights behind attention (S1, W0). So no two axes cut one dimension. Norms and routers, which tensor
/// does not cut, are (S0, R): they are small, but so every gradient takes the same way. A block is a unit: its
/// weights are gathered over data before it computes, and freed after it. M devices lie along data.
/// Builds on: 08_decoder/tensor.hpp, 08_decoder/fsdp.hpp, 09_mesh/data_tensor.hpp, 09_mesh/fsdp_tensor.hpp.

#include "decoder_parts.hpp"

namespace shard::meshes {

/// K: how keys and values lie over tensor (08_decoder/tensor_weights.hpp).
template <class K, bool is_sharded>
class DecoderOnMesh : public MeshDecoder {
 public:
  DecoderOnMesh(Communicator& group, const MeshShape& shape, const DecoderModel& model)
      : MeshEngine(group, shape), m_(model), parts_(*this, model) {}

  /// ## What this device owns
  /// Some heads, some hidden units of each feed-forward or expert, and some rows of the vocabulary, over
  /// tensor. Over data, each device has the same, or 1/M of it, which may be nothing of a small parameter.
  void load_checkpoint(const Checkpoint& c) override {
    for_each_parameter(
        m_, w_, [&]<class... L>(const std::string& name, OnDataTensor<L...>& p) { p = load<L...>(c, name); });
  }

  /// ## Forward
  /// The residual stream x is the same on the devices along tensor. Over data, nothing is sent but weights:
  /// units are the embedding, each block, and the last norm with the head. This last unit stays for the
  /// backward pass, which begins with it.
  Placed forward(Tensor input) override {
    const On<S<0>, R> sequences = from_outside<S<0>, R>(std::move(input));  // (b, 2 S)
    MyKept kept{placed(tokens_of(sequences, m_))};                          // T = b S of them
    kept.all_sequences = sequences.global_shape()[0];
    const Index rows = kept.all_sequences * kept.tokens.length;
    TokenRows x = parts_.embedded(whole(w_.embedding), kept.tokens, rows);  // (T, D)
    forget_choices();
    for (Index b = 0; b < m_.num_blocks; ++b) {
      auto& k = kept.blocks.emplace_back();
      const typename Parts::Weights& w = whole_block(b);
      accumulate(x, all_reduce<tensor>(parts_.attend(b, w, x, kept.tokens, k, cache())));
      accumulate(x, all_reduce<tensor>(parts_.feed_forward_block(w, x, k)));  // (W0, P) → (W0, R)
      if (mesh().place(tensor::name) == 0) note_choice(b, k.mixture.choice, kept.tokens);
    }
    if constexpr (is_sharded) {
      kept.own_norm = whole(w_.final_norm);  // (D)        (S0, R) → (R, R)
      kept.own_head = whole(w_.head(m_));    // (V/N, D)   (S1, S0) → (R, S0)
    }
    kept.n = rms_norm(x, final_norm(kept), m_.epsilon, m_.how, kept.norm);  // (T, D)
    On<W<0>, S<1>> z = scale(matmul(kept.n, transposed(head(kept))),
                             m_.how.logit_scale);  // (T, V/N)   (W0, R)·(R, S0)ᵀ = (W0, S1)
    show_logits(z.local(), kept.tokens, z.ranges()[1].begin);
    TokenRows losses = parts_.cross_entropy(std::move(z), kept.tokens, kept.softmax);  // (T, 1)
    tape_.push(std::move(kept));
    return losses;
  }

  /// ## Backward
  /// A block's gradients are complete over tensor when the block is done. Then each is summed over data, and
  /// this device gets the sum, or its part of it.
  Gradients backward(Tensor dloss) override {
    auto [kept] = tape_.pop();
    mesh().keep_whole(data::name, kept.all_sequences);
    Gradients gradients;
    const TokenRows dlosses = from_outside<W<0>, R>(std::move(dloss));  // (T, 1)
    On<W<0>, S<1>> dz =
        parts_.cross_entropy_backward(dlosses, kept.tokens, std::move(kept.softmax));  // (T, V/N)
    VocabularyAddend dhead = matmul(transposed(dz), kept.n);   // (V/N, D)   (W0, S1)ᵀ·(W0, R) = (P, S0)
    TokenRows d = all_reduce<tensor>(matmul(dz, head(kept)));  // (T, D)     (W0, P) → (W0, R)
    dz = {}, kept.own_head = {};
    On<P, R> dnorm;  // (D)
    d = parts_.norm_backward(std::move(d), final_norm(kept), kept.norm, dnorm);
    put(final_norm_name(), std::move(dnorm), gradients);
    if (is_sharded && !m_.is_tied) put(head_name(), std::exchange(dhead, {}), gradients);
    for (Index b = m_.num_blocks - 1; b >= 0; --b, kept.blocks.pop_back()) {
      typename Parts::Gradients g;
      {
        const typename Parts::Weights& w = whole_block(b);
        accumulate(d, parts_.feed_forward_block_backward(w, d, kept.blocks.back(), g));
        accumulate(d, parts_.attend_backward(w, d, kept.tokens, kept.blocks.back(), g));
      }
      for_each_parameter(m_, b, g,
                         [&](const std::string& name, auto& p) { put(name, std::move(p), gradients); });
    }
    VocabularyAddend dtable = parts_.embedding_backward(d, kept.tokens);  // (V/N, D)
    if (m_.is_tied)
      accumulate(dtable, std::move(dhead));
    else if (!is_sharded)
      put(head_name(), std::move(dhead), gradients);
    put(embedding_name(), std::move(dtable), gradients);
    return gradients;
  }

  Placement input_layout() const override { return placement<S<0>, R>(); }
  /// ## The step
  /// Parameters, gradients and state are divided alike, so nothing is gathered after the step.
  Trainables trainable() override { return decoders::trainables(m_, w_); }

 private:
  using Parts = DecoderParts<OnDataAndTensor, K>;
  using L0 = std::conditional_t<is_sharded, S<0>, R>;  // over data, of weights whose rows tensor does not cut
  using L1 = std::conditional_t<is_sharded, S<1>, R>;  // of the others
  template <class T>
  using Weight = OnDataTensor<L0, T>;
  template <class T>
  using WeightBehind = OnDataTensor<L1, T>;
  struct MyKept : decoders::Kept<typename Parts::Kept, TokenRows> {
    Index all_sequences = 0;  // B
    On<R, R> own_norm{};      // (D)        gathered
    Vocabulary own_head{};    // (V/N, D)   gathered
  };

  /// ## Over data
  /// A weight: what the device has, or (S, T) → (R, T).
  template <class T>
  static const OnDataTensor<R, T>& whole(const OnDataTensor<R, T>& w) {
    return w;
  }
  template <detail::Slice Cut, class T>
  OnDataTensor<R, T> whole(const OnDataTensor<Cut, T>& w, SourceLine where = SourceLine::current()) {
    return all_gather<data>(w, where);
  }
  const typename Parts::Weights& whole_block(Index b) requires(!is_sharded) { return w_.block(b); }
  typename Parts::Weights whole_block(Index b) requires is_sharded {
    typename Parts::Weights w;
    const auto& s = w_.block(b);
    w.attention_norm = whole(s.attention_norm);        // (D)          (S0, R)  → (R, R)
    w.query = whole(s.query);                          // (D, H d/N)   (S0, W1) → (R, W1)
    w.key = whole(s.key);                              // (D, G d/N)   or all
    w.value = whole(s.value);                          // (D, G d/N)   or all
    w.output = whole(s.output);                        // (H d/N, D)   (S1, W0) → (R, W0)
    w.feed_forward_norm = whole(s.feed_forward_norm);  // (D)          (S0, R)  → (R, R)
    if (m_.is_mixture()) w.router = whole(s.router);   // (D, E)       (S0, R)  → (R, R)
    for (const auto& e : s.experts)                    // (D, F/N), and (F/N, D)
      w.experts.push_back({whole(e.gate), whole(e.up), whole(e.down)});
    return w;
  }
  const On<R, R>& final_norm(const MyKept& kept) const {
    if constexpr (is_sharded)
      return kept.own_norm;
    else
      return w_.final_norm;
  }
  const Vocabulary& head(const MyKept& kept) const {
    if constexpr (is_sharded)
      return kept.own_head;
    else
      return w_.head(m_);
  }
  /// A gradient, P → R; or P → S, along the dimension that tensor does not cut.
  template <class T>
  void put(const std::string& name, On<P, T> dw, Gradients& gradients) {
    if constexpr (is_sharded)
      gradients.put(name, reduce_scatter < data, detail::axis_of<T> == 0 ? 1 : 0 > (std::move(dw)));
    else
      gradients.put(name, all_reduce<data>(std::move(dw)));
  }

  DecoderModel m_;
  decoders::Weights<BlockOver<Weight, K, WeightBehind>, OnDataTensor<L1, S<0>>, OnDataTensor<L0, R>> w_;
  Parts parts_;
  Tape<MyKept> tape_;
};

template <class K>
using DecoderDataTensor = DecoderOnMesh<K, false>;
template <class K>
using DecoderFsdpTensor = DecoderOnMesh<K, true>;

}  // namespace shard::meshes
