#pragma once

/// Which blocks each device has, where blocks are divided.

#include <string>
#include <vector>

#include "engine/workloads/decoder_model.hpp"

namespace shard::decoders {

/// The elements of one block's parameters.
Index elements_of_block(DecoderModel model);

/// Cuts the blocks into as many contiguous parts as there are devices. `how` is one of these:
///   even    as many blocks for each device; if there is a rest, one more for each of the first devices
///   bytes   so that the largest part's parameters take as few bytes as possible. The first part also has the
///           embedding, and the last one the last norm and the head
///   3,1,1   these numbers of blocks
/// \throws Error usage when there are fewer blocks than devices, or the list does not fit
std::vector<Range> split_blocks(const DecoderModel& model, int devices, const std::string& how);

}  // namespace shard::decoders
