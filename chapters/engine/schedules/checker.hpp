#pragma once

/// Proves a schedule before it runs.

#include <string>

#include "engine/schedules/interpreter.hpp"

namespace shard {

/// Proves these properties:
/// - Every micro-batch goes through each stage once forward and then once backward, on the stage's device.
/// - Every message that is needed is sent once and received once. It is posted before it is waited for, and
///   waited for before it is read.
/// - Between two devices, receives are posted in the order of sends.
/// - No devices wait for one another in a cycle.
/// \throws Error internal naming the first property that does not hold.
void check(const Schedule& schedule);

/// Devices of which each waits for the next one: a cycle, or a path to a device that has ended. Empty if no device
/// is stuck.
std::vector<Stuck> find_cycle(const Schedule& schedule, Sends sends);
/// "device 0 waits for device 1 (post send: ...); device 1 waits for device 0 (...)".
std::string to_string(const std::vector<Stuck>& cycle);

/// The largest number of micro-batches whose activations a device holds at one time. It holds a micro-batch's
/// activations from its forward to the end of its backward. One that is held in two stages counts twice.
Index most_held(const Schedule& schedule, int device);

}  // namespace shard
