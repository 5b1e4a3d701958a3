#pragma once

/// What `single` computes and holds, as a trace.

#include "engine/workloads/block_traces.hpp"

namespace shard::decoders {

/// No device sends anything.
inline Costs single_costs(const DecoderSetting& s) {
  const Index T = s.tokens(), D = s.m.model_dim, V = s.m.vocabulary;
  Trace t(s);
  t.hold(s.parameters());
  t.hold(2 * T);  // the input
  t.hold(T * D);  // x
  BlockTraces blocks;
  for (Index b = 0; b < s.m.num_blocks; ++b)
    blocks.push_back(
        std::make_unique<BlockTrace>(t, PartSizes(s.m, s.batch, s.length, s.choices(b, Range{0, T}))));
  forward(blocks);
  loss(t, T, D, V);
  t.release(T * D + 2 * T);
  t.hold(T);     // dL/dlosses
  t.release(T);  // losses
  loss_backward(t, T, D, V);
  backward(blocks);
  t.hold(V * D);  // of the embedding
  return t.costs(s.parameters());
}

}  // namespace shard::decoders
