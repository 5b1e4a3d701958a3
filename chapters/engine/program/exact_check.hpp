#pragma once

#include "engine/program/training_step.hpp"

namespace shard {

/// Runs one step of an exact problem with dL/dx and, if nothing differs, one as training does, without it.
/// Returns the largest difference of any result to the unsharded network's, in units in the last place, over
/// all devices. Device 0 prints a difference of each device, of two at most. A collective.
Index exact_difference(const Run& run);

}  // namespace shard
