#pragma once

/// Proves a schedule before it runs.

#include "schedule.hpp"

namespace shard::pipeline {

/// Proves: every micro-batch goes forward once and backward once through each stage, in that order, on the
/// stage's device; every message that is needed is sent once, received once, posted before it is waited for,
/// and waited for before it is read; between two devices receives are posted in the order of sends; there is
/// no cycle.
/// \throws Error internal naming the first thing that is not so.
void check(const Schedule& schedule);

/// Most micro-batches, counted for each stage by itself, whose activations a device holds: from a forward to
/// the end of its backward.
Index most_held(const Schedule& schedule, int device);

}  // namespace shard::pipeline
