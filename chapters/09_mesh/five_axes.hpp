#pragma once

/// The five axes of a decoder, and how its tensors lie on them. The letters stand in the order of the axes:
/// data, pipeline, context, expert, tensor. T is the letter over tensor.

#include "08_decoder/blocks.hpp"
#include "08_decoder/experts_here.hpp"
#include "axes.hpp"

namespace shard::meshes {

using namespace shard::decoders;  // blocks, routes and the ring

using FiveAxes = MeshAxes<data, pipeline, context, experts, tensor>;
using FiveEngine = MeshEngine<FiveAxes, LanguageModel>;
template <class... Letters>
using OnFive = OnMesh<FiveAxes, Letters...>;

/// Rows of tokens, at one stage: those of my sequences that are at my positions.
template <class T>
using Activation = OnFive<S<0>, O, S<0>, S<0>, T>;
/// Rows of tokens that came to one expert along the axis expert.
template <class T>
using Routed = OnFive<S<0>, O, S<0>, O, T>;
/// A weight of a stage. It has copies on data, context and expert.
template <class T>
using Weight = OnFive<R, O, R, R, T>;
/// A weight of an expert of a stage. It has copies on data and context only.
template <class T>
using ExpertWeight = OnFive<R, O, R, O, T>;
/// Their gradients before they are reduced: addends where the weights have copies.
/// @{
template <class T>
using Addend = OnFive<P, O, P, P, T>;
template <class T>
using ExpertAddend = OnFive<P, O, P, O, T>;
/// @}

/// The weights of a block, or their gradients: `Of` as above, and E of experts. Heads stay whole: the
/// letter W cuts between them. K is the letter of key-value heads over tensor: W<1>, or R where there are
/// more devices than these heads.
template <template <class> class Of, template <class> class E, class K>
struct FiveBlock {
  Of<R> attention_norm;                                // (D)
  Of<W<1>> query;                                      // (D, H d)
  Of<K> key, value;                                    // (D, G d)
  Of<W<0>> output;                                     // (H d, D)
  Of<R> feed_forward_norm;                             // (D)
  Of<R> router;                                        // (D, E) of a mixture
  FeedForward<Of<S<1>>, Of<S<0>>> feed_forward;        //        without experts
  std::vector<FeedForward<E<S<1>>, E<S<0>>>> experts;  //        all E; those of other devices are absent
};
/// All weights, or their gradients. Those of other stages are absent.
template <template <class> class Of, template <class> class E, class K>
struct FiveNetwork {
  Of<S<0>> embedding;  // (V, D)
  std::vector<FiveBlock<Of, E, K>> blocks{};
  Of<R> final_norm;   // (D)
  Of<S<0>> own_head;  // (V, D), of the last stage; a copy where the embedding is the head
};
template <class K>
using FiveWeights = FiveNetwork<Weight, ExpertWeight, K>;
template <class K>
using FiveAddends = FiveNetwork<Addend, ExpertAddend, K>;

/// A parameter's name, and the block and the expert with which it lies.
struct FiveParameter {
  std::string name;
  Index block, expert = 0;
};
/// Calls visit(FiveParameter, parameter...) for each parameter of a network, or of several at once.
/// @{
template <class Visit, class... Blocks>
void for_each_of_block(const DecoderModel& m, Index b, const Visit& visit, Blocks&... n) {
  auto named = [&](const char* name) { return FiveParameter{block_name(b, name), b}; };
  visit(named("attention_norm"), n.attention_norm...);
  visit(named("query"), n.query...);
  visit(named("key"), n.key...);
  visit(named("value"), n.value...);
  visit(named("output"), n.output...);
  visit(named("feed_forward_norm"), n.feed_forward_norm...);
  if (m.is_mixture()) visit(named("router"), n.router...);
  auto visit_feed_forward = [&](Index e, auto&... f) {
    visit(FiveParameter{feed_forward_name(m, b, e, "gate"), b, e}, f.gate...);
    visit(FiveParameter{feed_forward_name(m, b, e, "up"), b, e}, f.up...);
    visit(FiveParameter{feed_forward_name(m, b, e, "down"), b, e}, f.down...);
  };
  if (!m.is_mixture()) return visit_feed_forward(0, n.feed_forward...);
  (n.experts.resize(static_cast<std::size_t>(m.experts)), ...);
  for (Index e = 0; e < m.experts; ++e) visit_feed_forward(e, n.experts[static_cast<std::size_t>(e)]...);
}
template <class Visit, class... Networks>
void for_each_of_network(const DecoderModel& m, const Visit& visit, Networks&... n) {
  const Index last = m.num_blocks - 1;
  visit(FiveParameter{embedding_name(), 0}, n.embedding...);
  (n.blocks.resize(static_cast<std::size_t>(m.num_blocks)), ...);
  for (Index b = 0; b <= last; ++b) for_each_of_block(m, b, visit, n.blocks[static_cast<std::size_t>(b)]...);
  visit(FiveParameter{final_norm_name(), last}, n.final_norm...);
  if (!m.is_tied) visit(FiveParameter{head_name(), last}, n.own_head...);
}
/// @}

/// What a block keeps for its backward pass. T are the rows here, h, g and f this device's parts over tensor.
template <class K>
struct FiveBlockKept {
  Normed attention_norm, feed_forward_norm;
  Activation<R> n;        // (T, D)     what attention reads
  Activation<W<1>> q, o;  // (T, h d)
  Activation<K> k, v;     // (T, g d)   never another device's positions
  OnlineSoftmax softmax;
  Activation<R> f;                                 // (T, D)     what the feed-forward reads
  FeedForwardKept<Activation<S<1>>> feed_forward;  // (T, f)
  ExpertChoice choice;                             //            of my tokens
  Route route;
  ExpertsKept<Routed<R>, ExpertWeight<S<1>>> experts;  //            mine, of the tokens that came
  Tensor answers;                                      // (T · k, D) to my tokens: addends over tensor
};
template <class K>
using FiveKept = Kept<FiveBlockKept<K>, Activation<R>>;

/// Other numbers of the same rows, in the same letters.
template <class L>
L like(Tensor local, const L& rows) {
  return L::uneven(rows.mesh(), std::move(local), rows.global_shape());
}

/// What the parts of a block need to know of their engine.
struct FiveHere {
  FiveEngine& engine;
  DecoderModel m;
  KeyValueCache& cache;
  std::function<void(const Tensor& logits, const Tokens&, Index first_column)> show_logits;
  std::function<void(Index block, const ExpertChoice&, const Tokens&)> note_choice;

  Mesh& mesh() const { return engine.mesh(); }
  template <class Axis>
  Communicator& along() const {
    return mesh().axis(Axis::name);
  }
  /// The sum over tensor, P → R.
  Activation<R> over_tensor(Activation<P> addend, SourceLine where = SourceLine::current()) const {
    return engine.all_reduce<tensor>(std::move(addend), where);
  }
};

}  // namespace shard::meshes
