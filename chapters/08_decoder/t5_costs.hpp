#pragma once

/// What the variants for an encoder-decoder send, compute and hold.

#include "t5_block_traces.hpp"
#include "t5_split.hpp"

namespace shard::decoders {

/// `t5-single`: no device sends anything.
Costs t5_single_costs(const T5Setting& s);

/// `t5-tensor`: a device has all rows, and its part of heads, hidden units and vocabulary.
Costs t5_tensor_costs(const T5Setting& s);

/// `t5-layers`: a device has these blocks of all. `micro_batches` follow one another, by the schedule 1F1B.
Costs t5_layers_costs(const T5Setting& s, const T5Split& split, Index micro_batches);

}  // namespace shard::decoders
