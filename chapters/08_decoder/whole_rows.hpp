#pragma once

/// A block on rows that are whole on a device: on its own sequences, with weights that every device has
/// (Sharded<0> and Replicated), or on all sequences, with weights that it owns (Owned). Sequences need
/// nothing of one another, so nothing is sent here.

#include "decoder_block.hpp"

namespace shard::decoders {

/// For rows that lie as L: a block's weights, their gradients, and what the block keeps.
/// @{
template <WholeRows L>
using WeightsFor = Block<WeightFor<L>, WeightFor<L>, WeightFor<L>, WeightFor<L>>;
template <WholeRows L>
using GradientsFor = Block<SumOverRows<L>, SumOverRows<L>, SumOverRows<L>, SumOverRows<L>>;
template <WholeRows L>
using KeptFor = BlockKept<L, WeightFor<L>, L, L>;
/// @}

/// The tokens of this device's sequences, of an input (B, 2 S).
inline Tokens tokens_of(const Sharded<0>& input, const DecoderModel& m) {
  Tokens tokens = Tokens::read(input.local(), m.vocabulary);
  tokens.first_sequence = input.offset();
  return tokens;
}
/// Their activations, (T, D), of (B S, D).
inline Sharded<0> embedding_of(const Replicated& table, const Sharded<0>& input, const Tokens& mine) {
  return embedding(table, mine.ids, mine.first_sequence * mine.length, input.global_shape()[0] * mine.length);
}

/// A block on such rows: nothing is divided but rows (decoder_block.hpp).
template <WholeRows L>
struct OnWholeRows {
  const DecoderModel& m;

  static const L& all_rows(const L& n) { return n; }
  static L sum(L y) { return y; }
  static L of_all(L dk) { return dk; }
  static const ExpertChoice& of_my_rows(const ExpertChoice& choice, const KeptFor<L>&) { return choice; }

  /// Keys and values are kept as those of block b.
  L attention(const Tokens& t, KeptFor<L>& k, KeyValueCache& cache, Index b) const {
    const auto [keys, values, at] = cache.seen(b, k.k, k.v, t.positions);
    return shard::attention(k.q, keys, values, t.positions, at, all_heads(m, t.sequences), k.softmax);
  }
  AttentionGradientsOf<L, L> attention_backward(const L& dout, const Tokens& t, const KeptFor<L>& k) const {
    return shard::attention_backward(dout, k.o, k.q, k.k, k.v, t.positions, all_heads(m, t.sequences),
                                     k.softmax);
  }
  template <class W>
  static L of_attention(const L& dq, const L& dk, const L& dv, const W& w) {
    L dn = matmul(dq, transposed(w.query));
    accumulate(dn, matmul(dk, transposed(w.key)));
    accumulate(dn, matmul(dv, transposed(w.value)));
    return dn;
  }
};

}  // namespace shard::decoders
