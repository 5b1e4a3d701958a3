#pragma once

///     ./chapters/run 08 -n 3 train --variant ulysses
///
/// DeepSpeed-Ulysses (Jacobs et al. 2023): sequences are divided over the devices, and for attention, heads
/// are. An all-to-all turns some tokens of all heads into all tokens of some heads, so that attention is
/// computed as on one device. Another one turns the result back. A device sends 1/N of what it has to each
/// other device, so with more devices it sends less. A device without heads idles during attention.
/// Builds on: 08_decoder/sequence_decoder.hpp.

#include "sequence_decoder.hpp"

namespace shard::decoders {

/// What attention keeps: all tokens of my heads.
struct UlyssesKept {
  Sharded<1> q, o;          // (T, h d)
  Sharded<1> k, v;          // (T, g d)   where key-value heads are divided
  Replicated all_k, all_v;  // (T, G d)   where every device has all of them
  OnlineSoftmax softmax;
};

class UlyssesDecoder : public SequenceDecoder<UlyssesKept> {
 public:
  UlyssesDecoder(Communicator& group, const DecoderModel& model)
      : SequenceDecoder(group, model, SequenceCut::contiguous) {}

 protected:
  /// ## Attention
  /// All tokens of my heads. With fewer key-value heads than devices, each device gets all of them.
  Sharded<0> attention(Index b, Sharded<0> q, Sharded<0> k, Sharded<0> v, const SequenceCut& cut,
                       UlyssesKept& kept) override {
    const std::vector<Index> at = positions(cut);
    kept.q = to_heads(std::move(q), cut, units());  // (T, h d)   S0 → S1
    Sharded<1> o;                                   // (T, h d)
    if (divides_key_heads()) {
      kept.k = to_heads(std::move(k), cut, units());  // (T, g d)   S0 → S1
      kept.v = to_heads(std::move(v), cut, units());  // (T, g d)
      const auto [keys, values, at_keys] = cache().seen(b, kept.k, kept.v, at);
      o = shard::attention(kept.q, keys, values, at, at_keys, my_heads(cut), kept.softmax);
    } else {
      kept.all_k = to_all(std::move(k), cut);  // (T, G d)   S0 → R
      kept.all_v = to_all(std::move(v), cut);  // (T, G d)
      const auto [keys, values, at_keys] = cache().seen(b, kept.all_k, kept.all_v, at);
      o = shard::attention(kept.q, keys, values, at, at_keys, my_heads(cut), kept.softmax);
    }
    kept.o = Sharded<1>(group(), o.local().clone(), o.global_shape(), o.offset());
    return to_tokens(std::move(o), cut, units());  // (t, H d)   S1 → S0
  }
  /// A key-value head that every device has gets addends from the devices whose queries read it.
  AttentionGradientsOf<Sharded<0>, Sharded<0>> attention_backward(Sharded<0> dout, const Sharded<0>&,
                                                                  const SequenceCut& cut,
                                                                  UlyssesKept& kept) override {
    const std::vector<Index> at = positions(cut);
    const Sharded<1> d = to_heads(std::move(dout), cut, units());  // (T, h d)   S0 → S1
    if (divides_key_heads()) {
      auto [dq, dk, dv] = shard::attention_backward(d, kept.o, kept.q, kept.k, kept.v, at, my_heads(cut),
                                                    kept.softmax);  // S1, S1, S1
      return {to_tokens(std::move(dq), cut, units()), to_tokens(std::move(dk), cut, units()),
              to_tokens(std::move(dv), cut, units())};  // S1 → S0
    }
    auto [dq, dk, dv] = shard::attention_backward(d, kept.o, kept.q, kept.all_k, kept.all_v, at,
                                                  my_heads(cut), kept.softmax);  // S1, P, P
    return {to_tokens(std::move(dq), cut, units()), to_tokens(std::move(dk), cut),
            to_tokens(std::move(dv), cut)};  // S1 → S0, P → S0
  }

 private:
  /// ## How heads are divided
  /// By key-value heads, each with the query heads that share it, if there are as many as devices. Otherwise
  /// by query heads.
  bool divides_key_heads() const { return m_.key_heads >= num_devices(); }
  Index units() const { return divides_key_heads() ? m_.key_heads : m_.heads; }
  AttentionHeads my_heads(const SequenceCut& cut) const {
    const Range mine = part(units(), num_devices(), device_id());
    const Range of_keys = divides_key_heads() ? mine : Range{0, m_.key_heads};
    const Index of_unit = m_.heads / units();
    const Range of_queries = {mine.begin * of_unit, mine.end * of_unit};
    return {cut.sequences,  m_.head_dim, key_heads_of(of_queries, m_.shared(), of_keys.begin),
            of_keys.size(), m_.window,   m_.how};
  }
  /// All positions.
  static std::vector<Index> positions(const SequenceCut& cut) {
    return positions_from(cut.first_position, cut.length);
  }

  /// ## The change of layout
  /// Rows (t, w) of a matrix (T, w) as a tensor (B, S, units, w/units): of each sequence, some tokens.
  Sharded<1> by_sequence(Sharded<0> rows, const SequenceCut& cut, Index units) const {
    const Index B = cut.sequences, s = cut.size(device_id()), wide = rows.global_shape()[1] / units;
    return Sharded<1>(group(), std::move(rows).local().reshaped({B, s, units, wide}),
                      {B, cut.length, units, wide}, cut.places_before(device_id()));
  }
  /// The reverse.
  Sharded<0> by_row(Sharded<1> t, const SequenceCut& cut) const {
    const Range rows = cut.rows(device_id());
    const Index width = t.global_shape()[2] * t.global_shape()[3];
    return Sharded<0>(group(), std::move(t).local().reshaped({rows.size(), width}), {cut.all_rows(), width},
                      rows.begin);
  }
  /// Some tokens of all heads become all tokens of some heads, sequence by sequence: (t, w) → (T, w').
  Sharded<1> to_heads(Sharded<0> t, const SequenceCut& cut, Index units) {
    const Index width = t.global_shape()[1], of_unit = width / units;
    Sharded<2> mine = all_to_all<1, 2>(by_sequence(std::move(t), cut, units));  // (B, S, u, w/units)
    const Index first = mine.offset(), here = mine.local().extent(2);
    return Sharded<1>(group(), std::move(mine).local().reshaped({cut.all_rows(), here * of_unit}),
                      {cut.all_rows(), width}, first * of_unit);
  }
  /// And back: (T, w') → (t, w).
  Sharded<0> to_tokens(Sharded<1> t, const SequenceCut& cut, Index units) {
    const Index B = cut.sequences, S = cut.length, of_unit = t.global_shape()[1] / units;
    const Index first = t.offset() / std::max<Index>(of_unit, 1), here = t.local().extent(1) / of_unit;
    Sharded<2> by_head(group(), std::move(t).local().reshaped({B, S, here, of_unit}), {B, S, units, of_unit},
                       first);
    return by_row(all_to_all<2, 1>(std::move(by_head)), cut);
  }
  /// All tokens of all heads, sequence by sequence: (t, w) → (T, w).
  Replicated to_all(Sharded<0> t, const SequenceCut& cut) {
    const Index width = t.global_shape()[1];
    return reshaped(all_gather(by_sequence(std::move(t), cut, 1)), {cut.all_rows(), width});
  }
  /// My tokens of the sum: (T, w) → (t, w).
  Sharded<0> to_tokens(Partial t, const SequenceCut& cut) {
    const Index width = t.global_shape()[1];
    Partial by_sequence = reshaped(std::move(t), {cut.sequences, cut.length, 1, width});
    return by_row(reduce_scatter<1>(std::move(by_sequence)), cut);
  }
};

}  // namespace shard::decoders
