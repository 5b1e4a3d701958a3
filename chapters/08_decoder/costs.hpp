#pragma once

/// What the variants of this chapter send, compute and hold. Each closed form follows its engine statement by
/// statement, as a trace (engine/proof/trace.hpp).

#include "engine/workloads/block_traces.hpp"
#include "sequence_cut.hpp"
#include "single_costs.hpp"

namespace shard::decoders {

/// `tensor`: a device has all T rows, and its part of heads, hidden units and vocabulary.
Costs tensor_costs(const DecoderSetting& s);
/// With sequence-parallel norms: between two parts of a block it has t of the rows.
Costs tensor_sequence_costs(const DecoderSetting& s);

/// `context`: all weights, and some tokens of every sequence, cut like this. Keys and values travel in a
/// ring.
Costs context_costs(const DecoderSetting& s, CutSequences cut);
/// `ulysses`: the same, with all tokens of some heads for attention.
Costs ulysses_costs(const DecoderSetting& s);

/// `experts`: whole sequences, and some experts. Much depends on which experts the tokens chose.
Costs experts_costs(const DecoderSetting& s);

/// `fsdp`: whole sequences, and rows of every parameter. A block's weights are gathered a block ahead.
Costs fsdp_costs(const DecoderSetting& s);

/// `layers`: a device has these blocks of all. `micro_batches` follow one another, by the schedule 1F1B.
Costs layers_costs(const DecoderSetting& s, const std::vector<Range>& parts, Index micro_batches);

}  // namespace shard::decoders
