#pragma once

/// The five axes of a decoder, and how its tensors lie on them. The letters stand in the order of the axes:
/// data, pipeline, context, expert, tensor. T is the letter over tensor. (Part of five.hpp.)

#include "decoder_parts.hpp"

namespace shard::meshes {

using FiveAxes = MeshAxes<data, pipeline, context, experts, tensor>;
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
struct OnFiveAxes {
  using Axes = FiveAxes;
  template <class T>
  using Rows = Activation<T>;
  template <class T>
  using Weight = meshes::Weight<T>;
  template <class T>
  using Addend = meshes::Addend<T>;
};
/// The weights of a block, or their gradients: `Of` as above, and E of experts. K is the letter of key-value
/// heads over tensor.
template <template <class> class Of, template <class> class E, class K>
struct FiveBlock : BlockOver<Of, K> {  // `experts` is the feed-forward of a network without experts
  std::vector<FeedForward<E<S<1>>, E<S<0>>>> routed;  // all E; those of other devices are absent
};
/// All weights, or their gradients. Those of other stages are absent.
template <template <class> class Of, template <class> class E, class K>
struct FiveNetwork {
  Of<S<0>> embedding;  // (V, D)
  std::vector<FiveBlock<Of, E, K>> blocks;
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
/// Calls visit(FiveParameter, parameter...) for each parameter of some blocks, and of what lies with the
/// first and the last one; of a network, or of several at once.
/// @{
template <class Visit, class... Blocks>
void for_each_of_block(const DecoderModel& m, Index b, const Visit& visit, Blocks&... n) {
  decoders::for_each_part_but_experts(m, [&](const auto& part) {
    visit(FiveParameter{part.name(m, b), b}, *part.of(n)...);
  });
  auto visit_feed_forward = [&](Index e, auto&... f) {
    visit(FiveParameter{feed_forward_name(m, b, e, "gate"), b, e}, f.gate...);
    visit(FiveParameter{feed_forward_name(m, b, e, "up"), b, e}, f.up...);
    visit(FiveParameter{feed_forward_name(m, b, e, "down"), b, e}, f.down...);
  };
  (n.experts.resize(m.is_mixture() ? 0 : 1), ...);
  (n.routed.resize(static_cast<std::size_t>(m.experts)), ...);
  if (!m.is_mixture()) visit_feed_forward(0, n.experts[0]...);
  for (Index e = 0; e < m.experts; ++e) visit_feed_forward(e, n.routed[static_cast<std::size_t>(e)]...);
}
template <class Visit, class... Networks>
void for_each_of_blocks(const DecoderModel& m, Range blocks, const Visit& visit, Networks&... n) {
  (n.blocks.resize(static_cast<std::size_t>(m.num_blocks)), ...);
  if (blocks.begin == 0) visit(FiveParameter{embedding_name(), 0}, n.embedding...);
  for (Index b = blocks.begin; b < blocks.end; ++b)
    for_each_of_block(m, b, visit, n.blocks[static_cast<std::size_t>(b)]...);
  if (blocks.end < m.num_blocks) return;
  visit(FiveParameter{final_norm_name(), m.num_blocks - 1}, n.final_norm...);
  if (!m.is_tied) visit(FiveParameter{head_name(), m.num_blocks - 1}, n.own_head...);
}
template <class Visit, class... Networks>
void for_each_of_network(const DecoderModel& m, const Visit& visit, Networks&... n) {
  for_each_of_blocks(m, {0, m.num_blocks}, visit, n...);
}
/// @}

}  // namespace shard::meshes
