#pragma once

#include "engine/program/training_step.hpp"

namespace shard {

/// Runs one step of an exact problem, once with dL/dx and once as training does, without it. Returns the
/// largest difference of any result to the unsharded network's, in units in the last place, over all devices.
/// Device 0 prints each device's first difference. A collective.
Index exact_difference(const Run& run);

}  // namespace shard
