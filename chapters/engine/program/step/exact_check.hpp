#pragma once

#include "engine/program/step/step.hpp"

namespace shard {

/// Runs one step of an exact problem with dL/dx and, if nothing differs, one without it, as in training.
/// Returns the largest difference of any result from the unsharded network's, in ulp, over all devices.
/// Device 0 prints one difference of at most two devices. A collective.
Index exact_difference(const Run& run);

}  // namespace shard
