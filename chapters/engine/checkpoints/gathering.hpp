#pragma once

#include <functional>
#include <span>

#include "engine/checkpoints/writing_plan.hpp"

namespace shard {

/// Sends a tensor to device 0, which calls `take` with its elements in row-major order, piece by piece. No
/// message and no buffer is larger than 256 KiB, or than one row if that is larger. Device 0 needs no more
/// memory if the parts are whole rows, else it holds the tensor. `mine`: the part that this device holds, or
/// null. A collective.
void gather_on_first(Communicator& group, const PlannedTensor& tensor, const HeldPart* mine,
                     const std::function<void(std::span<const float>)>& take);

}  // namespace shard
