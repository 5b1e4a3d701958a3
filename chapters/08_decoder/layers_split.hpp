#pragma once

/// Which blocks each device has, where blocks are divided.

#include <string>
#include <vector>

#include "engine/workloads/decoder_model.hpp"

namespace shard::decoders {

/// Cuts blocks into as many contiguous parts as there are devices. `elements`: of the parameters that lie with
/// each block. `how` is one of these:
///   even    as many blocks for each device; if there is a rest, one more for each of the first devices
///   bytes   so that the largest part's parameters take as few bytes as possible
///   3,1,1   these numbers of blocks
/// \throws Error usage when there are fewer blocks than devices, or the list does not fit
std::vector<Range> split_blocks(const std::vector<Index>& elements, int devices, const std::string& how);

/// The blocks of a decoder. The embedding lies with the first one, and the last norm and the head with the
/// last one.
std::vector<Range> split_blocks(const DecoderModel& model, int devices, const std::string& how);

}  // namespace shard::decoders
