#pragma once

///     ./chapters/run 08 -n 4 train --variant context --balance zigzag
///
/// Context parallel: sequences are divided over the devices, and keys and values travel around a ring
/// (ring_attention.hpp). No device holds whole sequences, so they may be as long as all devices together can
/// hold. Any number of heads will do. Zigzag balances what devices compute (Llama Team 2024, "The Llama 3
/// Herd of Models", section 3.3.2; Megatron-LM's context parallelism).
/// Builds on: 08_decoder/sequence_decoder.hpp, 08_decoder/ring_attention.hpp.

#include "ring_attention.hpp"
#include "sequence_decoder.hpp"

namespace shard::decoders {

/// What attention keeps: my tokens' queries, keys and values, never another device's.
struct ContextKept {
  Sharded<0> q;           // (t, H d)
  Sharded<0> k, v;        // (t, G d)
  OnlineSoftmax softmax;  //            of my queries
};

class ContextDecoder : public SequenceDecoder<ContextKept> {
 public:
  using SequenceDecoder::SequenceDecoder;

 protected:
  /// A sequence that goes on token by token fills one device after the other, some tokens at a time.
  SequenceCut cut_of(const Tensor& input) const override {
    constexpr Index at_a_time = 32;
    return SequenceDecoder::cut_of(input).turned(next_position() / at_a_time);
  }

  /// ## Attention
  /// A device computes all heads for its own queries, while the keys of all devices pass by.
  Sharded<0> attention(Index b, Sharded<0> q, Sharded<0> k, Sharded<0> v, const SequenceCut& cut,
                       ContextKept& kept) override {
    kept.q = std::move(q), kept.k = std::move(k), kept.v = std::move(v);
    const std::vector<Index> at = cut.positions(device_id());
    const auto [keys, values, at_keys] = cache().seen(b, kept.k, kept.v, at);
    if (b == 0) keys_ = (cut.first_position > 0 ? std::move(keys_) : KeysOnRing()).with(cut);
    return relaid(ring_attention(group(), kept.q.local(), keys.local(), values.local(), at, keys_,
                                 all_heads(m_, cut.sequences), kept.softmax),
                  kept.q);
  }
  AttentionGradientsOf<Sharded<0>, Sharded<0>> attention_backward(Sharded<0> dout, const Sharded<0>& o,
                                                                  const SequenceCut& cut,
                                                                  ContextKept& kept) override {
    auto [dq, dk, dv] = ring_attention_backward(group(), dout.local(), o.local(), kept.q.local(),
                                                kept.k.local(), kept.v.local(), KeysOnRing().with(cut),
                                                all_heads(m_, cut.sequences), kept.softmax);
    return {relaid(std::move(dq), kept.q), relaid(std::move(dk), kept.k), relaid(std::move(dv), kept.v)};
  }

 private:
  KeysOnRing keys_;  // of the last forward pass
};

}  // namespace shard::decoders
