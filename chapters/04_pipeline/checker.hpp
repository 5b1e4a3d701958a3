#pragma once

/// Proves a schedule before it runs.

#include <string>
#include <vector>

#include "schedule.hpp"

namespace shard {

/// How a send behaves.
enum class Sends {
  posted,   ///< goes on at once; waiting for it ends when its receive has been posted
  blocking  ///< returns when the receiver has come to the point where it waits for it
};

/// A device that cannot go on: what it is about to do, and which device it waits for.
struct Stuck {
  int device;
  Action action;
  int waits_for;
};

/// Lets the devices go through their actions as far as they can. Returns the devices that wait for one another in a
/// cycle, in that order; nothing when everybody comes to the end.
std::vector<Stuck> find_cycle(const Schedule& schedule, Sends sends);
/// "device 0 waits for device 1 (post send: ...); device 1 waits for device 0 (...)".
std::string to_string(const std::vector<Stuck>& cycle);

/// Proves: every micro-batch goes forward once and backward once through each stage, in that order, on the stage's
/// device; every message that is needed is sent once, received once, posted before it is waited for, and waited for
/// before it is read; between two devices receives are posted in the order of sends; there is no cycle.
/// \throws Error internal naming the first thing that is not so.
void check(const Schedule& schedule);

/// Most micro-batches, counted for each stage by itself, whose activations a device holds: from a forward to the end of
/// its backward.
Index most_held(const Schedule& schedule, int device);

}  // namespace shard
