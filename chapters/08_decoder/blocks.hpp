#pragma once

/// A decoder's parameters, in any layout.

#include "engine/layers/attention.hpp"
#include "engine/layers/bias.hpp"
#include "engine/layers/mixture_of_experts.hpp"
#include "engine/layers/rms_norm.hpp"
#include "engine/layers/tokens/cross_entropy.hpp"
#include "engine/layers/tokens/embedding.hpp"
#include "engine/layers/tokens/language_model.hpp"
#include "engine/workloads/decoder/model.hpp"

namespace shard::decoders {

/// The parameters of a block, each in a layout: N for norms and the router, C for weights whose columns are
/// heads or hidden units, K for those of key-value heads, and R for weights whose rows are heads or hidden
/// units. In the feed-forward, F takes the place of C, and G that of R.
template <Layout N, Layout C, Layout K, Layout R, Layout F = C, Layout G = R>
struct Block {
  N attention_norm;                          // (D)
  C query;                                   // (D, H d)
  K key, value;                              // (D, G d)
  C query_bias;                              // (1, H d)   of a network with biases
  K key_bias, value_bias;                    // (1, G d)
  R output;                                  // (H d, D)
  N feed_forward_norm;                       // (D)
  N router;                                  // (D, E) of a mixture
  std::vector<FeedForward<F, G>> experts{};  // one, or E
};

/// A parameter of a block: its name, and its member of a Block, which may hold weights or gradients.
/// @{
template <class Of>
struct Part {
  const char* word;
  Of of;              ///< a pointer to it, of a Block
  Index expert = -1;  ///< or the feed-forward's, 0; -1: of neither

  std::string name(const DecoderModel& m, Index b) const {
    return expert < 0 ? block_name(b, word) : feed_forward_name(m, b, expert, word);
  }
};
template <class Of>
Part(const char*, Of, Index = -1) -> Part<Of>;

namespace of_block {
inline constexpr Part attention_norm{"attention_norm", [](auto& b) { return &b.attention_norm; }};
inline constexpr Part query{"query", [](auto& b) { return &b.query; }};
inline constexpr Part key{"key", [](auto& b) { return &b.key; }};
inline constexpr Part value{"value", [](auto& b) { return &b.value; }};
inline constexpr Part query_bias{"query_bias", [](auto& b) { return &b.query_bias; }};
inline constexpr Part key_bias{"key_bias", [](auto& b) { return &b.key_bias; }};
inline constexpr Part value_bias{"value_bias", [](auto& b) { return &b.value_bias; }};
inline constexpr Part output{"output", [](auto& b) { return &b.output; }};
inline constexpr Part feed_forward_norm{"feed_forward_norm", [](auto& b) { return &b.feed_forward_norm; }};
inline constexpr Part router{"router", [](auto& b) { return &b.router; }};
inline auto gate(std::size_t e) {
  return Part{"gate", [e](auto& b) { return &b.experts[e].gate; }, static_cast<Index>(e)};
}
inline auto up(std::size_t e) {
  return Part{"up", [e](auto& b) { return &b.experts[e].up; }, static_cast<Index>(e)};
}
inline auto down(std::size_t e) {
  return Part{"down", [e](auto& b) { return &b.experts[e].down; }, static_cast<Index>(e)};
}
}  // namespace of_block
/// @}

/// Calls visit(part) for each parameter of a block.
/// @{
template <class Visit>
void for_each_part_but_experts(const DecoderModel& m, const Visit& visit) {
  using namespace of_block;
  visit(attention_norm), visit(query), visit(key), visit(value), visit(output), visit(feed_forward_norm);
  if (m.has_bias) visit(query_bias), visit(key_bias), visit(value_bias);
  if (m.is_mixture()) visit(router);
}
template <class Visit>
void for_each_part(const DecoderModel& m, const Visit& visit) {
  for_each_part_but_experts(m, visit);
  for (std::size_t e = 0; e < std::max<std::size_t>(static_cast<std::size_t>(m.experts), 1); ++e)
    visit(of_block::gate(e)), visit(of_block::up(e)), visit(of_block::down(e));
}
/// @}
/// Calls visit(name, parameter) for each parameter of a block.
template <class AnyBlock, class Visit>
void for_each_parameter(const DecoderModel& m, Index b, AnyBlock& block, const Visit& visit) {
  block.experts.resize(static_cast<std::size_t>(std::max<Index>(m.experts, 1)));
  for_each_part(m, [&](const auto& part) { visit(part.name(m, b), *part.of(block)); });
}

/// All parameters of a decoder. E is the layout of the embedding and the head.
template <class AnyBlock, Layout E, Layout N>
struct Weights {
  E embedding;  // (V, D)
  std::vector<AnyBlock> blocks;
  N final_norm;  // (D)
  E own_head;    // (V, D), unless it is the embedding

  const AnyBlock& block(Index b) const { return blocks[static_cast<std::size_t>(b)]; }
  const E& head(const DecoderModel& m) const { return m.is_tied ? embedding : own_head; }
};

template <class AnyWeights, class Visit>
void for_each_parameter(const DecoderModel& m, AnyWeights& w, const Visit& visit) {
  visit(embedding_name(), w.embedding);
  w.blocks.resize(static_cast<std::size_t>(m.num_blocks));
  for (Index b = 0; b < m.num_blocks; ++b)
    for_each_parameter(m, b, w.blocks[static_cast<std::size_t>(b)], visit);
  visit(final_norm_name(), w.final_norm);
  if (!m.is_tied) visit(head_name(), w.own_head);
}

/// All parameters that this device has, for the optimizer.
template <class Model, class AnyWeights>
Trainables trainables(const Model& m, AnyWeights& w) {
  Trainables all;
  for_each_parameter(m, w, [&](const std::string& name, auto& parameter) { all.add(name, parameter); });
  return all;
}

inline Rotary rotary_of(const DecoderModel& m) {
  return {m.head_dim, m.rope_base, m.how};
}
/// All heads of some sequences.
inline AttentionHeads all_heads(const DecoderModel& m, Index sequences) {
  return {sequences, m.head_dim, key_heads_of({0, m.heads}, m.shared(), 0), m.key_heads, m.window, m.how};
}

}  // namespace shard::decoders
