#pragma once

/// Which keys the attentions of an encoder-decoder see, also in a pass that goes on with a target.

#include <numeric>

#include "t5_blocks.hpp"

namespace shard::decoders {

/// Positions from 0 to that of the last of these tokens: with those of earlier passes.
inline std::vector<Index> all_positions(const Tokens& tokens) {
  std::vector<Index> all(tokens.positions.empty() ? 0
                                                  : static_cast<std::size_t>(tokens.positions.back() + 1));
  std::iota(all.begin(), all.end(), 0);
  return all;
}
/// Whether no pass before has begun these sequences. In a pass that goes on
/// (LanguageModel::continue_sequence), the encoder has nothing to read, and what the decoder's cross
/// attentions made of its result is kept.
inline bool begins(const Tokens& target) {
  return target.positions.empty() || target.positions.front() == 0;
}

/// Which keys an attention's queries see. In the decoder, those of earlier passes are kept, by a number of
/// the attention's.
struct Sight {
  std::span<const Index> at_q, at_k;
  AttentionHeads heads;
  std::optional<Index> kept_as = std::nullopt;
};
/// A stack's own tokens: in the decoder, those before a query and itself. The bias says which heads are here.
/// The attention is in the last block that the stack has begun.
template <Layout X, Layout H>
Sight own_tokens(const T5Model& m, Side side, const T5StackKept<X, H>& k) {
  const Tensor& bias = k.bias.local();
  const Index heads = bias.extent(1);
  AttentionHeads all{k.tokens.sequences, m.head_dim, key_heads_of({0, heads}, 1, 0), heads,
                     std::nullopt,       m.how};
  all.is_causal = side == Side::decoder;
  all.bias = &bias;
  Sight sight{k.tokens.positions, k.tokens.positions, std::move(all)};
  if (side == Side::decoder) sight.kept_as = 2 * static_cast<Index>(k.blocks.size());
  return sight;
}
/// All tokens of the source, for the same heads of the target.
template <Layout X, Layout H>
Sight source_tokens(const T5Model& m, const T5StackKept<X, H>& target, const T5StackKept<X, H>& source) {
  Sight sight = own_tokens(m, Side::encoder, target);
  sight.at_k = source.tokens.positions;
  sight.heads.bias = nullptr;
  sight.kept_as = 2 * static_cast<Index>(target.blocks.size()) + 1;
  return sight;
}

}  // namespace shard::decoders
