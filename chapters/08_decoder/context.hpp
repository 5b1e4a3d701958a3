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
  /// ## Attention
  /// All heads of my queries. Others' keys come and go.
  Sharded<0> attention(Sharded<0> q, Sharded<0> k, Sharded<0> v, const SequenceCut& cut,
                       ContextKept& kept) override {
    kept.q = std::move(q), kept.k = std::move(k), kept.v = std::move(v);
    return ring_attention(kept.q, kept.k, kept.v, cut, all_heads(m_, cut.sequences), kept.softmax);
  }
  AttentionGradientsOf<Sharded<0>, Sharded<0>> attention_backward(Sharded<0> dout, const Sharded<0>& o,
                                                                  const SequenceCut& cut,
                                                                  ContextKept& kept) override {
    return ring_attention_backward(dout, o, kept.q, kept.k, kept.v, cut, all_heads(m_, cut.sequences),
                                   kept.softmax);
  }
};

}  // namespace shard::decoders
