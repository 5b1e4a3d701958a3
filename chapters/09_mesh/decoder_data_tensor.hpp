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
/// does not cut, are (S0, R): they are small, but so every gradient takes the same way. A block is a unit:
/// its weights are gathered over data before it computes, and freed after it. M devices lie along data.
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
    TokenRows x = parts_.sum(embedded<On<W<0>, P>>(whole(w_.embedding), kept.tokens, rows));  // (T, D)
    forget_choices();
    for (Index b = 0; b < m_.num_blocks; ++b) {
      auto& k = kept.blocks.emplace_back();
      const typename Parts::Weights& w = whole_block(b);
      accumulate(x, parts_.sum(attend(parts_, w, x, kept.tokens, k, b)));  // (W0, P) → (W0, R)
      accumulate(x, parts_.sum(feed_forward_block(parts_, w, x, k)));      // (W0, P) → (W0, R)
      if (mesh().place(tensor::name) == 0) note_choice(b, k.mixture.choice, kept.tokens);
    }
    if constexpr (is_sharded) {
      kept.own_norm = whole(w_.final_norm);  // (D)        (S0, R) → (R, R)
      kept.own_head = whole(w_.head(m_));    // (V/N, D)   (S1, S0) → (R, S0)
    }
    TokenRows losses = decoders::losses_of(parts_, *this, x, read(kept.own_norm, w_.final_norm),
                                           read(kept.own_head, w_.head(m_)), kept.tokens, kept);  // (T, 1)
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
    VocabularyAddend dhead;                                             // (V/N, D)
    On<P, R> dnorm;                                                     // (D)
    auto keep = [&](const auto&, On<P, R> dw) { dnorm = std::move(dw); };
    TokenRows d = decoders::losses_backward(parts_, dlosses, read(kept.own_norm, w_.final_norm),
                                            read(kept.own_head, w_.head(m_)), kept.tokens, kept, dhead,
                                            keep);  // (T, D)
    kept.own_head = {};
    put(final_norm_name(), std::move(dnorm), gradients);
    if (is_sharded && !m_.is_tied) put(head_name(), std::exchange(dhead, {}), gradients);
    for (Index b = m_.num_blocks - 1; b >= 0; --b, kept.blocks.pop_back()) {
      typename Parts::Gradients g;
      {
        const typename Parts::Weights& w = whole_block(b);
        const auto put_g = decoders::added_to(g, m_);
        accumulate(d, feed_forward_block_backward(parts_, w, d, kept.blocks.back(), put_g));
        accumulate(d, attend_backward(parts_, w, d, kept.tokens, kept.blocks.back(), put_g));
      }
      for_each_parameter(m_, b, g,
                         [&](const std::string& name, auto& p) { put(name, std::move(p), gradients); });
    }
    VocabularyAddend dtable = table_gradient<VocabularyAddend>(d, kept.tokens, m_.vocabulary);  // (V/N, D)
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
  template <Slice Cut, class T>
  OnDataTensor<R, T> whole(const OnDataTensor<Cut, T>& w, SourceLine where = SourceLine::current()) {
    return all_gather<data>(w, where);
  }
  const typename Parts::Weights& whole_block(Index b) requires(!is_sharded) { return w_.block(b); }
  typename Parts::Weights whole_block(Index b) requires is_sharded {
    typename Parts::Weights w;
    w.experts.resize(w_.block(b).experts.size());
    decoders::for_each_part(m_, [&](const auto& part) { *part.of(w) = whole(*part.of(w_.block(b))); });
    return w;
  }
  /// What was gathered of a weight, or the weight itself.
  static const auto& read(const auto& gathered, const auto&) requires is_sharded { return gathered; }
  static const auto& read(const auto&, const auto& mine) requires(!is_sharded) { return mine; }
  /// A gradient, P → R; or P → S, along the dimension that tensor does not cut.
  template <class T>
  void put(const std::string& name, On<P, T> dw, Gradients& gradients) {
    constexpr int free_axis = axis_of<T> == 0 ? 1 : 0;
    if constexpr (is_sharded)
      gradients.put(name, reduce_scatter<data, free_axis>(std::move(dw)));
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
