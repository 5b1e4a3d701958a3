#pragma once

/// Proves a schedule before it runs.

#include <string>

#include "engine/schedules/interpreter.hpp"

namespace shard {

/// Proves: every micro-batch goes forward once and backward once through each stage, in that order, on the
/// stage's device; every message that is needed is sent once, received once, posted before it is waited for,
/// and waited for before it is read; between two devices receives are posted in the order of sends; there is
/// no cycle.
/// \throws Error internal naming the first thing that is not so.
void check(const Schedule& schedule);

/// The devices that wait for one another in a cycle, in that order; nothing when all come to the end.
std::vector<Stuck> find_cycle(const Schedule& schedule, Sends sends);
/// "device 0 waits for device 1 (post send: ...); device 1 waits for device 0 (...)".
std::string to_string(const std::vector<Stuck>& cycle);

/// Most micro-batches, counted for each stage by itself, whose activations a device holds: from a forward to
/// the end of its backward.
Index most_held(const Schedule& schedule, int device);

}  // namespace shard
