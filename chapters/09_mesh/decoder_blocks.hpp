#pragma once

/// The parts of a decoder on the axes data and tensor, for the two engines that have it. A device has whole
/// sequences, its part of the batch over data, and of each block whole heads and some hidden units, its part
/// over tensor. W is a slice of whole pieces: of sequences over data, of heads over tensor. N devices lie
/// along tensor. (08_decoder/tensor.hpp has the same statements with one letter.)

#include "08_decoder/tensor_weights.hpp"
#include "decoder_tensors.hpp"

namespace shard::meshes {

/// A block of weights. Over tensor: norms and routers are whole, and heads and hidden units are cut. K is
/// W<1> or R: keys and values of some heads, or of all (08_decoder/tensor_weights.hpp). Over data, weights have
/// the letter L; those whose rows tensor cuts have Behind.
template <class L, class K, class Behind = L>
using BlockOver =
    decoders::Block<OnDataTensor<L, R>, OnDataTensor<L, W<1>>, OnDataTensor<L, K>, OnDataTensor<Behind, W<0>>,
                    OnDataTensor<L, S<1>>, OnDataTensor<Behind, S<0>>>;

/// A block's two parts, with weights that are whole over data. Forward, each is an addend over tensor.
/// Backward, each ends with one all-reduce over tensor, and gradients of weights are addends over data.
template <class K>
class DecoderParts {
 public:
  using Weights = BlockOver<R, K>;
  using Gradients = BlockOver<P, K>;
  using Keys = OnDataTensor<W<0>, K>;
  using Kept = decoders::BlockKept<TokenRows, OnDataTensor<R, W<1>>, Keys, TokenAddend, TokenRows,
                                   OnDataTensor<R, S<1>>>;

  DecoderParts(MeshDecoder& engine, const DecoderModel& model)
      : engine_(&engine), m_(model), rotary_(decoders::rotary_of(model)) {
    const int devices = engine.mesh().size(tensor::name);
    engine.mesh().keep_whole(tensor::name, decoders::TensorHeads(m_, devices).pieces());
  }

  TokenAddend attend(Index b, const Weights& w, const TokenRows& x, const Tokens& t, Kept& k,
                     KeyValueCache& cache) const {
    k.n = rms_norm(x, w.attention_norm, m_.epsilon, m_.how, k.attention_norm);  // (T, D)
    k.q = rotary(matmul(k.n, w.query), t.sequences, t.positions, rotary_);      // (T, H d/N)   (W0, W1)
    k.k = rotary(matmul(k.n, w.key), t.sequences, t.positions, rotary_);        // (T, G d/N)   or all
    k.v = matmul(k.n, w.value);                                                 // (T, G d/N)   or all
    const auto [keys, values, at] = cache.seen(b, k.k, k.v, t.positions);
    k.o = attention(k.q, keys, values, t.positions, at, heads(t), k.softmax);  // (T, H d/N)
    return matmul(k.o, w.output);  // (T, D)   (W0, W1)·(R, W0) = (W0, P)
  }
  TokenRows attend_backward(const Weights& w, const TokenRows& d, const Tokens& t, Kept& k,
                            Gradients& g) const {
    g.output = matmul(transposed(k.o), d);  // (H d/N, D)   (W0, W1)ᵀ·(W0, R) = (P, W0)
    auto of = attention_backward(matmul(d, transposed(w.output)), k.o, k.q, k.k, k.v, t.positions, heads(t),
                                 k.softmax);
    const auto dq = rotary_backward(std::move(of.dq), t.sequences, t.positions, rotary_);  // (W0, W1)
    const Keys dk = rotary_backward(of_all(std::move(of.dk)), t.sequences, t.positions, rotary_);
    const Keys dv = of_all(std::move(of.dv));  // (T, G d/N)   or all
    g.query = matmul(transposed(k.n), dq);     // (D, H d/N)   (W0, R)ᵀ·(W0, W1) = (P, W1)
    g.key = matmul(transposed(k.n), dk);       // (D, G d/N)   or all
    g.value = matmul(transposed(k.n), dv);     // (D, G d/N)   or all
    auto of_keys = matmul(dk, transposed(w.key));
    accumulate(of_keys, matmul(dv, transposed(w.value)));
    TokenRows dn = joined(matmul(dq, transposed(w.query)), std::move(of_keys));  // (T, D)
    return rms_norm_backward(std::move(dn), w.attention_norm, m_.how, k.attention_norm, g.attention_norm);
  }

  /// Devices along tensor choose the same experts for their tokens, and have their hidden units of each.
  TokenAddend think(const Weights& w, const TokenRows& x, Kept& k) const {
    k.f = rms_norm(x, w.feed_forward_norm, m_.epsilon, m_.how, k.feed_forward_norm);       // (T, D)
    if (!m_.is_mixture()) return feed_forward(k.f, w.experts[0], m_.how, k.feed_forward);  // (W0, P)
    ExpertChoice choice = choose_experts(matmul(k.f, w.router), m_.top_k, m_.how);         // of (T, E)
    return mixture_of_experts(k.f, std::move(choice), w.experts, m_.how, k.mixture);       // (W0, P)
  }
  TokenRows think_backward(const Weights& w, const TokenRows& d, Kept& k, Gradients& g) const {
    TokenRows dn;
    auto put = [&](auto& of) {
      g.experts.push_back({std::move(of.gate), std::move(of.up), std::move(of.down)});
    };
    if (m_.is_mixture()) {
      auto dy = mixture_of_experts_backward(d, w.experts, m_.how, k.mixture);
      for (auto& of_expert : dy.experts) put(of_expert);
      TokenRows dgates = engine_->all_reduce<tensor>(std::move(dy.gates));  // (T, k)   (W0, P) → (W0, R)
      const TokenRows dlogits = choose_experts_backward(std::move(dgates), k.mixture.choice, m_.how);
      g.router = matmul(transposed(k.f), dlogits);        // (D, E)   (W0, R)ᵀ·(W0, R) = (P, R)
      dn = engine_->all_reduce<tensor>(std::move(dy.n));  // (T, D)
      accumulate(dn, matmul(dlogits, transposed(w.router)));
    } else {
      auto dy = feed_forward_backward(d, k.f, w.experts[0], m_.how, std::move(k.feed_forward));
      dn = engine_->all_reduce<tensor>(std::move(dy.n));  // (T, D)   (W0, P) → (W0, R)
      put(dy);
    }
    return rms_norm_backward(std::move(dn), w.feed_forward_norm, m_.how, k.feed_forward_norm,
                             g.feed_forward_norm);
  }

 private:
  AttentionHeads heads(const Tokens& t) const {
    return decoders::my_heads(m_, engine_->mesh().axis(tensor::name), t.sequences);
  }
  /// The gradient of keys, or of values, through all query heads: where a device has only some of them, an
  /// addend.
  OnDataTensor<W<0>, W<1>> of_all(OnDataTensor<W<0>, W<1>> slice) const { return slice; }
  TokenRows of_all(TokenAddend addend) const { return engine_->all_reduce<tensor>(std::move(addend)); }
  /// The gradient of n through queries, and that through keys and values.
  TokenRows joined(TokenAddend queries, TokenAddend keys) const {
    return engine_->all_reduce<tensor>(std::move(queries) + keys);
  }
  TokenRows joined(TokenAddend queries, TokenRows keys) const {
    return engine_->all_reduce<tensor>(std::move(queries)) + keys;
  }

  MeshDecoder* engine_;
  DecoderModel m_;
  Rotary rotary_;
};

}  // namespace shard::meshes
