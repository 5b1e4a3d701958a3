#pragma once

/// What the engines of this chapter share: a decoder's parameters, in any layout, and what a block keeps.

#include "engine/layers/attention.hpp"
#include "engine/layers/mixture_of_experts.hpp"
#include "engine/layers/rms_norm.hpp"
#include "engine/layers/tokens/cross_entropy.hpp"
#include "engine/layers/tokens/embedding.hpp"
#include "engine/layers/tokens/language_model.hpp"
#include "engine/workloads/decoder/model.hpp"

namespace shard::decoders {

/// A block's parameters. Norms and the router lie as N says; weights whose columns are heads or hidden units
/// as C, those of key-value heads as K; and weights whose rows are, as R. The feed-forward's may lie in other
/// ways, as F and G say.
template <Layout N, Layout C, Layout K, Layout R, Layout F = C, Layout G = R>
struct Block {
  N attention_norm;                          // (D)
  C query;                                   // (D, H d)
  K key, value;                              // (D, G d)
  R output;                                  // (H d, D)
  N feed_forward_norm;                       // (D)
  N router;                                  // (D, E) of a mixture
  std::vector<FeedForward<F, G>> experts{};  // one, or E
};

/// Calls visit(name, parameter) for each parameter of an expert, or of the feed-forward that a block has.
template <class AnyFeedForward, class Visit>
void for_each_parameter(const DecoderModel& m, Index b, Index e, AnyFeedForward& w, const Visit& visit) {
  visit(feed_forward_name(m, b, e, "gate"), w.gate);
  visit(feed_forward_name(m, b, e, "up"), w.up);
  visit(feed_forward_name(m, b, e, "down"), w.down);
}

/// The same for each parameter of a block.
/// @{
template <class AnyBlock, class Visit>
void for_each_parameter_but_experts(const DecoderModel& m, Index b, AnyBlock& block, const Visit& visit) {
  visit(block_name(b, "attention_norm"), block.attention_norm);
  visit(block_name(b, "query"), block.query);
  visit(block_name(b, "key"), block.key);
  visit(block_name(b, "value"), block.value);
  visit(block_name(b, "output"), block.output);
  visit(block_name(b, "feed_forward_norm"), block.feed_forward_norm);
  if (m.is_mixture()) visit(block_name(b, "router"), block.router);
}
template <class AnyBlock, class Visit>
void for_each_parameter(const DecoderModel& m, Index b, AnyBlock& block, const Visit& visit) {
  for_each_parameter_but_experts(m, b, block, visit);
  block.experts.resize(static_cast<std::size_t>(std::max<Index>(m.experts, 1)));
  for (std::size_t e = 0; e < block.experts.size(); ++e)
    for_each_parameter(m, b, static_cast<Index>(e), block.experts[e], visit);
}
/// @}

/// All parameters of a decoder. The embedding and the head lie as E says.
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

/// Adds the gradients of the embedding and the head. A table that is both has the sum of the two.
template <class Model, Layout E>
void put_tables(const Model& m, E embedding, E head, Gradients& gradients) {
  if (m.is_tied)
    accumulate(embedding, std::move(head));
  else
    gradients.put(head_name(), std::move(head));
  gradients.put(embedding_name(), std::move(embedding));
}

/// What a block keeps. Its products read X, its heads and hidden units lie as H, its keys and values as G.
/// What its norms give is kept as N. The feed-forward's weights may lie in another way, as F says.
template <Layout X, Layout C, Layout G, Layout Y, Layout N = X, Layout F = C>
struct BlockKept {
  using H = ProductOf<X, C>;
  Normed attention_norm, feed_forward_norm;
  N n;                    // (T, D)     what attention reads
  H q, o;                 // (T, H d)
  G k, v;                 // (T, G d)
  OnlineSoftmax softmax;  //            of each head and token: the largest score, and the sum of powers
  N f;                    // (T, D)     what the feed-forward reads
  FeedForwardKept<ProductOf<X, F>> feed_forward;
  MixtureKept<X, F, Y> mixture;
};

/// What a forward pass keeps.
template <class AnyBlockKept, class X>
struct Kept {
  Tokens tokens;
  std::vector<AnyBlockKept> blocks{};
  Normed norm{};
  X n{};                   // (T, D)     what the head reads
  TokenSoftmax softmax{};  // (T, V)
};

/// Adds the gradients of an expert's weights, or of the feed-forward's. They lie as these do.
template <class D>
void put_expert(const DecoderModel& m, Index b, std::size_t e, D d, Gradients& gradients) {
  const auto expert = static_cast<Index>(e);
  gradients.put(feed_forward_name(m, b, expert, "gate"), std::move(d.gate));  // (D, F)
  gradients.put(feed_forward_name(m, b, expert, "up"), std::move(d.up));      // (D, F)
  gradients.put(feed_forward_name(m, b, expert, "down"), std::move(d.down));  // (F, D)
}

/// The gradient of a norm's weights, (D), over all rows: where rows are divided, each device has an addend.
/// @{
inline Replicated over_all_rows(ShardedEngine&, Replicated dw) {
  return dw;
}
inline Replicated over_all_rows(ShardedEngine& engine, Partial dw) {
  return engine.all_reduce(std::move(dw));
}
/// @}

/// Puts the gradient of a norm's weights, and returns that of its rows.
template <WholeRows L>
L norm_backward(ShardedEngine& engine, const std::string& name, L dy, const Replicated& w,
                const Arithmetic& how, const Normed& kept, Gradients& gradients) {
  SumOverRows<L> dw;  // (D)
  L dx = rms_norm_backward(std::move(dy), w, how, kept, dw);
  gradients.put(name, over_all_rows(engine, std::move(dw)));
  return dx;
}

inline Rotary rotary_of(const DecoderModel& m) {
  return {m.head_dim, m.rope_base, m.how};
}
/// All heads of some sequences.
inline AttentionHeads all_heads(const DecoderModel& m, Index sequences) {
  return {sequences, m.head_dim, key_heads_of({0, m.heads}, m.shared(), 0), m.key_heads, m.window, m.how};
}

}  // namespace shard::decoders
