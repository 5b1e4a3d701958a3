#pragma once

/// The parts of a decoder on a mesh whose axis tensor divides heads, hidden units and the vocabulary, for the
/// engines that have it. W is a slice of whole pieces: of heads over tensor, of sequences over data. N
/// devices lie along tensor. (08_decoder/tensor.hpp is the same with one letter.)

#include "08_decoder/decoder_block.hpp"
#include "08_decoder/ring_attention.hpp"
#include "08_decoder/tensor_weights.hpp"
#include "vocabulary.hpp"

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
/// hidden units are cut. K is W<1> or R: keys and values of some heads, or of all
/// (08_decoder/tensor_weights.hpp). Those weights whose rows tensor cuts lie as Behind says.
template <template <class> class Of, class K, template <class> class Behind = Of>
using BlockOver = decoders::Block<Of<R>, Of<W<1>>, Of<K>, Behind<W<0>>, Of<S<1>>, Behind<S<0>>>;

/// A tensor with the shape and the letters of `rows`, and with other elements.
template <class L>
L like(Tensor local, const L& rows) {
  return L::uneven(rows.mesh(), std::move(local), rows.global_shape());
}
/// How engines divide a decoder's block (08_decoder/decoder_block.hpp). Forward, each half of it is an addend
/// over tensor. Backward, each ends with one all-reduce over tensor, and gradients of weights are addends
/// over the axes on which these have copies.
template <class Lies, class K>
class DecoderParts {
 public:
  template <class T>
  using Rows = typename Lies::template Rows<T>;
  using Weights = BlockOver<Lies::template Weight, K>;
  using Gradients = BlockOver<Lies::template Addend, K>;
  using Kept = decoders::BlockKept<Rows<R>, typename Lies::template Weight<W<1>>, Rows<K>, Rows<P>, Rows<R>,
                                   typename Lies::template Weight<S<1>>>;
  using Engine = MeshEngine<typename Lies::Axes, LanguageModel>;

  DecoderParts(Engine& engine, const DecoderModel& model) : m(model), engine_(&engine) {
    const int devices = engine.mesh().size(tensor::name);
    engine.mesh().keep_whole(tensor::name, decoders::TensorHeads(m, devices).pieces());
  }

  DecoderModel m;

  static const Rows<R>& all_rows(const Rows<R>& n) { return n; }
  /// The sum over tensor, P → R.
  Rows<R> sum(Rows<P> addend, SourceLine where = SourceLine::current()) const {
    return engine_->template all_reduce<tensor>(std::move(addend), where);
  }

  /// ## Attention: my heads of my tokens
  /// `keys`: the positions of the keys of each device along context, if there is this axis.
  Rows<W<1>> attention(const Tokens& t, Kept& k, Index b, const decoders::KeysOnRing& keys = {}) const {
    const auto [ks, vs, at] = engine_->cache().seen(b, k.k, k.v, t.positions);
    if constexpr (has_context)
      return like(decoders::ring_attention(ring(), k.q.local(), ks.local(), vs.local(), t.positions, keys,
                                           heads(t), k.softmax),
                  k.q);
    else
      return shard::attention(k.q, ks, vs, t.positions, at, heads(t), k.softmax);
  }
  AttentionGradientsOf<Rows<W<1>>, Rows<K>> attention_backward(const Rows<W<1>>& dout, const Tokens& t,
                                                               const Kept& k,
                                                               const decoders::KeysOnRing& keys = {}) const {
    if constexpr (has_context) {
      AttentionGradients d =
          decoders::ring_attention_backward(ring(), dout.local(), k.o.local(), k.q.local(), k.k.local(),
                                            k.v.local(), keys, heads(t), k.softmax);
      auto of_keys = [&](Tensor dk) { return KeyAddend::uneven(mesh(), std::move(dk), k.k.global_shape()); };
      return {like(std::move(d.dq), k.q), of_keys(std::move(d.dk)), of_keys(std::move(d.dv))};
    } else {
      return shard::attention_backward(dout, k.o, k.q, k.k, k.v, t.positions, heads(t), k.softmax);
    }
  }
  /// Where a device has only some of the query heads that read a key-value head, the gradient is an addend.
  Rows<W<1>> of_all(Rows<W<1>> dk) const { return dk; }
  Rows<R> of_all(Rows<P> dk) const { return sum(std::move(dk)); }
  Rows<R> of_attention(const Rows<W<1>>& dq, const Rows<K>& dk, const Rows<K>& dv, const Weights& w) const {
    auto through_keys = matmul(dk, transposed(w.key));  // (T, D)   P or R
    accumulate(through_keys, matmul(dv, transposed(w.value)));
    return joined(matmul(dq, transposed(w.query)), std::move(through_keys));
  }

  /// ## Experts: devices along tensor choose the same for their tokens, and have their hidden units of each
  static const ExpertChoice& of_my_rows(const ExpertChoice& choice, const Kept&) { return choice; }

 protected:
  Mesh& mesh() const { return engine_->mesh(); }

 private:
  static constexpr bool has_context = Lies::Axes::template has<context>;
  using KeyAddend = KeyGradient<Rows<W<1>>, Rows<K>>;
  Communicator& ring() const { return mesh().axis(context::name); }
  AttentionHeads heads(const Tokens& t) const {
    return decoders::my_heads(m, mesh().axis(tensor::name), t.sequences);
  }
  Rows<R> joined(Rows<P> queries, Rows<P> keys) const { return sum(std::move(queries) + keys); }
  Rows<R> joined(Rows<P> queries, Rows<R> keys) const { return sum(std::move(queries)) + keys; }

  Engine* engine_;
};

}  // namespace shard::meshes
