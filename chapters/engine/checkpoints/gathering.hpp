#pragma once

#include <functional>
#include <span>

#include "engine/checkpoints/writing_plan.hpp"

namespace shard {

/// Brings a tensor to device 0, which calls `take` with its elements in row-major order, in several pieces. No
/// message and no buffer is larger than 256 KiB (or a row, where that is longer). Where parts are whole rows,
/// device 0 holds no more than that; else it holds the tensor. `mine`: the part that this device holds, if
/// any. A collective.
void gather_on_first(Communicator& group, const PlannedTensor& tensor, const HeldPart* mine,
                     const std::function<void(std::span<const float>)>& take);

}  // namespace shard
