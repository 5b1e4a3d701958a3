#pragma once

/// The parameters of an encoder-decoder, and what its blocks keep for their backward pass, in any layout. X
/// is the layout of activations and norms; C that of weights whose columns are heads or hidden units, and of
/// what is computed with them; R that of weights whose rows are heads or hidden units, and of the embedding
/// and the head. Whole: R, R, R, or O, O, O. Divided: R, S1, S0.

#include "decoder_block.hpp"
#include "engine/layers/attention.hpp"
#include "engine/workloads/t5/model.hpp"

namespace shard::decoders {

/// The parameters of an attention, of a block, of a stack, and all.
/// @{
template <Layout X, Layout C, Layout R>
struct T5Attention {
  X norm;               // (D)
  C query, key, value;  // (D, H d)
  R output;             // (H d, D)
};
template <Layout X, Layout C, Layout R>
struct T5Block {
  T5Attention<X, C, R> self, cross;  // cross: in the decoder
  X feed_forward_norm;               // (D)
  FeedForward<C, R> feed_forward;
};
template <Layout X, Layout C, Layout R>
struct T5Stack {
  C position_bias;  // (buckets, H)
  std::vector<T5Block<X, C, R>> blocks;
  X final_norm;  // (D)
};
template <Layout X, Layout C, Layout R>
struct T5Weights {
  R embedding;  // (V, D)
  T5Stack<X, C, R> encoder, decoder;
  R own_head;  // (V, D), unless it is the embedding

  const T5Stack<X, C, R>& stack(Side side) const { return side == Side::encoder ? encoder : decoder; }
  T5Stack<X, C, R>& stack(Side side) { return side == Side::encoder ? encoder : decoder; }
  const R& head(const T5Model& m) const { return m.is_tied ? embedding : own_head; }
};
/// @}

/// Calls visit(name, parameter) for each parameter of an attention, of a block, or of all.
/// @{
template <Layout X, Layout C, Layout R, class Visit>
void for_each_parameter(const std::string& before, T5Attention<X, C, R>& w, const Visit& visit) {
  visit(before + "norm", w.norm);
  visit(before + "query", w.query);
  visit(before + "key", w.key);
  visit(before + "value", w.value);
  visit(before + "output", w.output);
}
template <Layout X, Layout C, Layout R, class Visit>
void for_each_parameter(const T5Model& m, Side side, Index b, T5Block<X, C, R>& w, const Visit& visit) {
  for_each_parameter(t5_name(side, b, "self_"), w.self, visit);
  if (side == Side::decoder) for_each_parameter(t5_name(side, b, "cross_"), w.cross, visit);
  visit(t5_name(side, b, "feed_forward_norm"), w.feed_forward_norm);
  if (m.has_gate()) visit(t5_name(side, b, "gate"), w.feed_forward.gate);
  visit(t5_name(side, b, "up"), w.feed_forward.up);
  visit(t5_name(side, b, "down"), w.feed_forward.down);
}
template <Layout X, Layout C, Layout R, class Visit>
void for_each_parameter(const T5Model& m, T5Weights<X, C, R>& w, const Visit& visit) {
  visit(embedding_name(), w.embedding);
  for (Side side : {Side::encoder, Side::decoder}) {
    T5Stack<X, C, R>& stack = w.stack(side);
    visit(t5_name(side, "position_bias"), stack.position_bias);
    stack.blocks.resize(static_cast<std::size_t>(m.blocks(side)));
    for (Index b = 0; b < m.blocks(side); ++b)
      for_each_parameter(m, side, b, stack.blocks[static_cast<std::size_t>(b)], visit);
    visit(t5_name(side, "final_norm"), stack.final_norm);
  }
  if (!m.is_tied) visit(head_name(), w.own_head);
}
/// @}

/// What an attention, a block, a stack, and a whole pass keep. Heads and hidden units lie as C.
/// @{
template <Layout X, Layout C>
struct T5AttentionKept {
  Normed norm;
  X n;     // (T, D)     what queries are made of
  C q, o;  // (T, H d)
  C k, v;  // (T, H d)   of cross attention: (T_e, H d)
  OnlineSoftmax softmax;
};
template <Layout X, Layout C>
struct T5BlockKept {
  T5AttentionKept<X, C> self, cross;
  Normed feed_forward_norm;
  X f;  // (T, D)     what the feed-forward reads
  FeedForwardKept<C> feed_forward;
};
template <Layout X, Layout C>
struct T5StackKept {
  Tokens tokens;
  std::vector<Index> buckets{};  // (S · S)    of each query and key
  C bias{};                      // (S · S, H)
  std::vector<T5BlockKept<X, C>> blocks{};
  Normed norm{};
  X n{};                   // (T, D)     what the stack returns
  TokenSoftmax softmax{};  // (T, V)     in the decoder
};
template <Layout X, Layout C>
struct T5Kept {
  T5StackKept<X, C> encoder, decoder;

  T5StackKept<X, C>& stack(Side side) { return side == Side::encoder ? encoder : decoder; }
};
/// @}

/// Positions from 0 to that of the last of these tokens: with those of earlier passes.
inline std::vector<Index> all_positions(const Tokens& tokens) {
  return positions_from(0, tokens.positions.empty() ? 0 : tokens.positions.back() + 1);
}
/// Whether this is the first pass of these sequences. In later passes (LanguageModel::continue_sequence), the
/// encoder has nothing to read, and the keys and values that the decoder's cross attentions computed from its
/// result are kept.
inline bool begins(const Tokens& target) {
  return target.positions.empty() || target.positions.front() == 0;
}

}  // namespace shard::decoders
