#pragma once

/// What the variants for an encoder-decoder send, compute and hold.

#include "t5_block_traces.hpp"

namespace shard::decoders {

/// `t5-single`: no device sends anything.
Costs t5_single_costs(const T5Setting& s);

/// `t5-tensor`: a device has all rows, and its part of heads, hidden units and vocabulary.
Costs t5_tensor_costs(const T5Setting& s);

}  // namespace shard::decoders
