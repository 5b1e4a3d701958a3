#pragma once

/// The parts of a decoder on a mesh whose axis tensor divides heads, hidden units and the vocabulary, for the
/// engines that have it. W is a slice of whole pieces: of heads over tensor, of sequences over data. N devices
/// lie along tensor. (08_decoder/tensor.hpp has the same statements with one letter.)

#include "08_decoder/ring_attention.hpp"
#include "08_decoder/tensor_weights.hpp"
#include "08_decoder/vocabulary_loss.hpp"
#include "axes.hpp"
#include "engine/layers/tokens/embedding.hpp"

namespace shard::meshes {

using MeshDecoder = MeshEngine<DataTensorAxes, LanguageModel>;
template <class... Letters>
using OnDataTensor = OnMesh<DataTensorAxes, Letters...>;

using TokenRows = OnDataTensor<W<0>, R>;   // (T, D)     T tokens, of whole sequences
using Vocabulary = OnDataTensor<R, S<0>>;  // (V/N, D)
using VocabularyAddend = OnDataTensor<P, S<0>>;

/// The tokens of this device's sequences, of an input (B, 2 S). The mesh learns that there are B.
inline Tokens tokens_of(const OnDataTensor<S<0>, R>& input, const DecoderModel& m) {
  input.mesh().keep_whole(data::name, input.global_shape()[0]);
  Tokens tokens = Tokens::read(input.local(), m.vocabulary);
  tokens.first_sequence = input.ranges()[0].begin;
  return tokens;
}

/// How a decoder's tensors lie on the other axes. T is the letter over tensor.
struct OnDataAndTensor {
  using Axes = DataTensorAxes;
  template <class T>
  using Rows = OnDataTensor<W<0>, T>;  // of tokens
  template <class T>
  using Weight = OnDataTensor<R, T>;
  template <class T>
  using Addend = OnDataTensor<P, T>;  // a weight's gradient: a sum over rows
};

/// A block of weights, where `Of` says how they lie. Over tensor, norms and routers are whole, and heads and
/// hidden units are cut. K is W<1> or R: keys and values of some heads, or of all (08_decoder/tensor_weights.hpp).
/// Those weights whose rows tensor cuts lie as Behind says.
template <template <class> class Of, class K, template <class> class Behind = Of>
using BlockOver = decoders::Block<Of<R>, Of<W<1>>, Of<K>, Behind<W<0>>, Of<S<1>>, Behind<S<0>>>;

/// Other numbers of the same rows, in the same letters.
template <class L>
L like(Tensor local, const L& rows) {
  return L::uneven(rows.mesh(), std::move(local), rows.global_shape());
}

/// Forward, each part of a block is an addend over tensor. Backward, each ends with one all-reduce over tensor,
/// and gradients of weights are addends over the axes on which these have copies.
template <class Lies, class K>
class DecoderParts {
 public:
  template <class T>
  using Rows = typename Lies::template Rows<T>;
  using Table = typename Lies::template Weight<S<0>>;        // (V/N, D)
  using TableAddend = typename Lies::template Addend<S<0>>;  // (V/N, D)
  using Weights = BlockOver<Lies::template Weight, K>;
  using Gradients = BlockOver<Lies::template Addend, K>;
  using Kept = decoders::BlockKept<Rows<R>, typename Lies::template Weight<W<1>>, Rows<K>, Rows<P>, Rows<R>,
                                   typename Lies::template Weight<S<1>>>;
  using Engine = MeshEngine<typename Lies::Axes, LanguageModel>;

  DecoderParts(Engine& engine, const DecoderModel& model)
      : engine_(&engine), m_(model), rotary_(decoders::rotary_of(model)) {
    const int devices = engine.mesh().size(tensor::name);
    engine.mesh().keep_whole(tensor::name, decoders::TensorHeads(m_, devices).pieces());
  }

  /// The sum over tensor, P → R.
  Rows<R> over_tensor(Rows<P> addend, SourceLine where = SourceLine::current()) const {
    return engine_->template all_reduce<tensor>(std::move(addend), where);
  }

  /// ## Attention
  /// `keys`: where all devices' keys stand, if context divides positions.
  Rows<P> attend(Index b, const Weights& w, const Rows<R>& x, const Tokens& t, Kept& k, KeyValueCache& cache,
                 const decoders::KeysOnRing& keys = {}) const {
    k.n = rms_norm(x, w.attention_norm, m_.epsilon, m_.how, k.attention_norm);  // (T, D)
    k.q = rotary(matmul(k.n, w.query), t.sequences, t.positions, rotary_);      // (T, H d/N)   R·W1 = W1
    k.k = rotary(matmul(k.n, w.key), t.sequences, t.positions, rotary_);        // (T, G d/N)   or all
    k.v = matmul(k.n, w.value);                                                 // (T, G d/N)   or all
    const auto [ks, vs, at] = cache.seen(b, k.k, k.v, t.positions);
    if constexpr (has_context)
      k.o = like(decoders::ring_attention(ring(), k.q.local(), ks.local(), vs.local(), t.positions, keys,
                                          heads(t), k.softmax),
                 k.q);
    else
      k.o = attention(k.q, ks, vs, t.positions, at, heads(t), k.softmax);  // (T, H d/N)
    return matmul(k.o, w.output);                                          // (T, D)   W1·W0 = P
  }
  Rows<R> attend_backward(const Weights& w, const Rows<R>& d, const Tokens& t, Kept& k, Gradients& g,
                          const decoders::KeysOnRing& keys = {}) const {
    accumulate(g.output, matmul(transposed(k.o), d));  // (H d/N, D)   W1ᵀ·R = W0
    auto of = heads_backward(matmul(d, transposed(w.output)), t, k, keys);
    const auto dq = rotary_backward(std::move(of.dq), t.sequences, t.positions, rotary_);  // (T, H d/N)
    const Rows<K> dk = rotary_backward(of_all(std::move(of.dk)), t.sequences, t.positions, rotary_);
    const Rows<K> dv = of_all(std::move(of.dv));       // (T, G d/N)   or all
    accumulate(g.query, matmul(transposed(k.n), dq));  // (D, H d/N)   Rᵀ·W1 = W1
    accumulate(g.key, matmul(transposed(k.n), dk));    // (D, G d/N)   or all
    accumulate(g.value, matmul(transposed(k.n), dv));  // (D, G d/N)   or all
    auto of_keys = matmul(dk, transposed(w.key));      // (T, D)       P or R
    accumulate(of_keys, matmul(dv, transposed(w.value)));
    Rows<R> dn = joined(matmul(dq, transposed(w.query)), std::move(of_keys));  // (T, D)
    return norm_backward(std::move(dn), w.attention_norm, k.attention_norm, g.attention_norm);
  }

  /// ## The feed-forward, or experts
  /// Devices along tensor choose the same experts for their tokens, and have their hidden units of each.
  Rows<P> feed_forward_block(const Weights& w, const Rows<R>& x, Kept& k) const {
    k.f = rms_norm(x, w.feed_forward_norm, m_.epsilon, m_.how, k.feed_forward_norm);       // (T, D)
    if (!m_.is_mixture()) return feed_forward(k.f, w.experts[0], m_.how, k.feed_forward);  // R·S1·S0 = P
    ExpertChoice choice = choose_experts(matmul(k.f, w.router), m_.top_k, m_.how);         // of (T, E)
    return mixture_of_experts(k.f, std::move(choice), w.experts, m_.how, k.mixture);       // (T, D)   P
  }
  Rows<R> feed_forward_block_backward(const Weights& w, const Rows<R>& d, Kept& k, Gradients& g) const {
    g.experts.resize(w.experts.size());
    Rows<R> dn;
    if (m_.is_mixture()) {
      auto dy = mixture_of_experts_backward(d, w.experts, m_.how, k.mixture);
      for (std::size_t e = 0; e < g.experts.size(); ++e) add_to(g.experts[e], std::move(dy.experts[e]));
      Rows<R> dgates = over_tensor(std::move(dy.gates));  // (T, k)   P → R
      const Rows<R> dlogits = choose_experts_backward(std::move(dgates), k.mixture.choice, m_.how);
      accumulate(g.router, matmul(transposed(k.f), dlogits));  // (D, E)   Rᵀ·R = R
      dn = over_tensor(std::move(dy.n));                       // (T, D)   P → R
      accumulate(dn, matmul(dlogits, transposed(w.router)));
    } else {
      auto dy = feed_forward_backward(d, k.f, w.experts[0], m_.how, std::move(k.feed_forward));
      dn = over_tensor(std::move(dy.n));  // (T, D)   P → R
      add_to(g.experts[0], std::move(dy));
    }
    return norm_backward(std::move(dn), w.feed_forward_norm, k.feed_forward_norm, g.feed_forward_norm);
  }

  /// The gradient of a norm's rows. That of its weights, (D), is added to `sum`.
  Rows<R> norm_backward(Rows<R> dy, const typename Lies::template Weight<R>& w, const Normed& kept,
                        typename Lies::template Addend<R>& sum) const {
    typename Lies::template Addend<R> dw;  // (D)
    Rows<R> dx = rms_norm_backward(std::move(dy), w, m_.how, kept, dw);
    accumulate(sum, std::move(dw));
    return dx;
  }
  /// Adds the gradients of an expert's weights, or of the feed-forward's, to their sums.
  template <class Sums, class Addends>
  static void add_to(Sums& sums, Addends addends) {
    accumulate(sums.gate, std::move(addends.gate));  // (D, F/N)
    accumulate(sums.up, std::move(addends.up));      // (D, F/N)
    accumulate(sums.down, std::move(addends.down));  // (F/N, D)
  }

  /// ## What lies over the vocabulary
  /// (T, D) of `rows` tokens on all devices. A device along tensor has 0 for tokens that are not in its rows of
  /// the table, so this is a sum.
  Rows<R> embedded(const Table& table, const Tokens& t, Index rows) const {
    Tensor mine = combine_rows(table.local(), in_slice(t.ids, table.ranges()[0]), 1);
    return over_tensor(claimed<Rows<P>>(std::move(mine), {rows, m_.model_dim}));
  }
  /// The gradient of the table, (V/N, D).
  TableAddend embedding_backward(const Rows<R>& d, const Tokens& t) const {
    const Range here = range_after(TableAddend::cuts(mesh()), 0, m_.vocabulary);
    Tensor sum(Shape{here.size(), m_.model_dim});
    scatter_add_rows(d.local(), in_slice(t.ids, here), sum);
    return claimed<TableAddend>(std::move(sum), {m_.vocabulary, m_.model_dim});
  }
  /// z (T, V/N): losses (T, 1). Numbers of each token go over tensor, since other devices have other tokens.
  Rows<R> cross_entropy(Rows<S<1>> z, const Tokens& t, TokenSoftmax& kept) const {
    const Index rows = z.global_shape()[0], first = z.ranges()[1].begin;
    Tensor losses = decoders::divided_cross_entropy(std::move(z).local(), first, t, m_.how, kept,
                                                    mesh().axis(tensor::name));
    return claimed<Rows<R>>(std::move(losses), {rows, 1});
  }
  /// dz (T, V/N).
  Rows<S<1>> cross_entropy_backward(const Rows<R>& dlosses, const Tokens& t, TokenSoftmax kept) const {
    return claimed<Rows<S<1>>>(shard::cross_entropy_backward(dlosses.local(), t, m_.how, std::move(kept)),
                               {dlosses.global_shape()[0], m_.vocabulary});
  }

 private:
  static constexpr bool has_context = Lies::Axes::template has<context>;
  Mesh& mesh() const { return engine_->mesh(); }
  Communicator& ring() const { return mesh().axis(context::name); }
  /// This device's part of a tensor. Where context divides positions, no rule says which rows these are.
  template <class L>
  L claimed(Tensor mine, Shape global) const {
    if constexpr (has_context)
      return L::uneven(mesh(), std::move(mine), std::move(global));
    else
      return L(mesh(), std::move(mine), std::move(global));
  }

  AttentionHeads heads(const Tokens& t) const {
    return decoders::my_heads(m_, mesh().axis(tensor::name), t.sequences);
  }
  /// The gradients of queries, keys and values.
  AttentionGradientsOf<Rows<W<1>>, Rows<K>> heads_backward(Rows<W<1>> dout, const Tokens& t, const Kept& k,
                                                           const decoders::KeysOnRing& keys) const {
    if constexpr (has_context) {
      AttentionGradients d =
          decoders::ring_attention_backward(ring(), dout.local(), k.o.local(), k.q.local(), k.k.local(),
                                            k.v.local(), keys, heads(t), k.softmax);
      auto of_keys = [&](Tensor dk) { return KeyAddend::uneven(mesh(), std::move(dk), k.k.global_shape()); };
      return {like(std::move(d.dq), k.q), of_keys(std::move(d.dk)), of_keys(std::move(d.dv))};
    } else {
      return attention_backward(dout, k.o, k.q, k.k, k.v, t.positions, heads(t), k.softmax);
    }
  }
  /// The gradient of keys, or of values, through all query heads: where a device has only some of them, an
  /// addend.
  using KeyAddend = typename detail::KeyGradient<Rows<W<1>>, Rows<K>>::type;
  Rows<W<1>> of_all(Rows<W<1>> slice) const { return slice; }
  Rows<R> of_all(Rows<P> addend) const { return over_tensor(std::move(addend)); }
  /// The gradient of n through queries, and that through keys and values.
  Rows<R> joined(Rows<P> queries, Rows<P> keys) const { return over_tensor(std::move(queries) + keys); }
  Rows<R> joined(Rows<P> queries, Rows<R> keys) const { return over_tensor(std::move(queries)) + keys; }

  Engine* engine_;
  DecoderModel m_;
  Rotary rotary_;
};

}  // namespace shard::meshes
