#pragma once

/// What the engines of an encoder-decoder share: its parameters, in any layout, and what its blocks keep for
/// their backward pass.

#include "blocks.hpp"
#include "engine/layers/relative_positions.hpp"
#include "engine/workloads/t5_model.hpp"

namespace shard::decoders {

/// The parameters of an attention. The norm lies as N says; weights whose columns are heads as C, and weights
/// whose rows are, as R. The same holds for hidden units.
template <Layout N, Layout C, Layout R>
struct T5Attention {
  N norm;               // (D)
  C query, key, value;  // (D, H d)
  R output;             // (H d, D)
};
template <Layout N, Layout C, Layout R>
struct T5Block {
  T5Attention<N, C, R> self, cross;  // cross: in the decoder
  N feed_forward_norm;               // (D)
  FeedForward<C, R> feed_forward;
};
template <Layout N, Layout C, Layout R>
struct T5Stack {
  C position_bias;  // (buckets, H)
  std::vector<T5Block<N, C, R>> blocks;
  N final_norm;  // (D)
};

/// All parameters. The embedding and the head lie as E says.
template <Layout E, Layout N, Layout C, Layout R>
struct T5Weights {
  E embedding;  // (V, D)
  T5Stack<N, C, R> encoder, decoder;
  E own_head;  // (V, D), unless it is the embedding

  const T5Stack<N, C, R>& stack(Side side) const { return side == Side::encoder ? encoder : decoder; }
  T5Stack<N, C, R>& stack(Side side) { return side == Side::encoder ? encoder : decoder; }
  const E& head(const T5Model& m) const { return m.is_tied ? embedding : own_head; }
};

/// Calls visit(name, parameter) for each parameter of an attention, of a block, or of all.
/// @{
template <Layout N, Layout C, Layout R, class Visit>
void for_each_parameter(const std::string& before, T5Attention<N, C, R>& w, const Visit& visit) {
  visit(before + "norm", w.norm);
  visit(before + "query", w.query);
  visit(before + "key", w.key);
  visit(before + "value", w.value);
  visit(before + "output", w.output);
}
template <Layout N, Layout C, Layout R, class Visit>
void for_each_parameter(const T5Model& m, Side side, Index b, T5Block<N, C, R>& w, const Visit& visit) {
  for_each_parameter(t5_name(side, b, "self_"), w.self, visit);
  if (side == Side::decoder) for_each_parameter(t5_name(side, b, "cross_"), w.cross, visit);
  visit(t5_name(side, b, "feed_forward_norm"), w.feed_forward_norm);
  if (m.has_gate()) visit(t5_name(side, b, "gate"), w.feed_forward.gate);
  visit(t5_name(side, b, "up"), w.feed_forward.up);
  visit(t5_name(side, b, "down"), w.feed_forward.down);
}
template <Layout E, Layout N, Layout C, Layout R, class Visit>
void for_each_parameter(const T5Model& m, T5Weights<E, N, C, R>& w, const Visit& visit) {
  visit(embedding_name(), w.embedding);
  for (Side side : {Side::encoder, Side::decoder}) {
    T5Stack<N, C, R>& stack = w.stack(side);
    visit(t5_name(side, "position_bias"), stack.position_bias);
    stack.blocks.resize(static_cast<std::size_t>(m.blocks(side)));
    for (Index b = 0; b < m.blocks(side); ++b)
      for_each_parameter(m, side, b, stack.blocks[static_cast<std::size_t>(b)], visit);
    visit(t5_name(side, "final_norm"), stack.final_norm);
  }
  if (!m.is_tied) visit(head_name(), w.own_head);
}
/// @}

/// Whether it is a parameter of an attention. Its matrices' rows or columns belong to heads.
inline bool is_of_attention(const std::string& name) {
  return name.find("/self_") != name.npos || name.find("/cross_") != name.npos;
}

/// What an attention keeps. Its norm gives rows as X, and its heads lie as H.
template <Layout X, Layout H>
struct T5AttentionKept {
  Normed norm;
  X n;     // (T, D)     what queries are made of
  H q, o;  // (T, H d)
  H k, v;  // (T, H d)   of cross attention: (T_e, H d)
  OnlineSoftmax softmax;
};
template <Layout X, Layout H>
struct T5BlockKept {
  T5AttentionKept<X, H> self, cross;
  Normed feed_forward_norm;
  X f;  // (T, D)     what the feed-forward reads
  FeedForwardKept<H> feed_forward;
};
template <Layout X, Layout H>
struct T5StackKept {
  Tokens tokens;
  std::vector<Index> buckets{};  // (S · S)    of each query and key
  H bias{};                      // (S · S, H)
  std::vector<T5BlockKept<X, H>> blocks{};
  Normed norm{};
  X n{};  // (T, D)     what the stack returns
};
template <Layout X, Layout H>
struct T5Kept {
  T5StackKept<X, H> encoder, decoder;
  TokenSoftmax softmax{};  // (T, V)
};

/// Adds the gradients of a feed-forward's weights. They lie as these do.
template <class D>
void put_feed_forward(const T5Model& m, Side side, Index b, D d, Gradients& gradients) {
  if (m.has_gate()) gradients.put(t5_name(side, b, "gate"), std::move(d.gate));  // (D, F)
  gradients.put(t5_name(side, b, "up"), std::move(d.up));                        // (D, F)
  gradients.put(t5_name(side, b, "down"), std::move(d.down));                    // (F, D)
}

}  // namespace shard::decoders
