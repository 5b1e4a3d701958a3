#pragma once

/// Goes through a schedule without computing or sending anything: do the devices come to its end?

#include <string>
#include <vector>

#include "schedule.hpp"

namespace shard::pipeline {

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

/// Lets the devices go through their actions as far as they can. Returns the devices that wait for one
/// another in a cycle, in that order; nothing when everybody comes to the end.
std::vector<Stuck> find_cycle(const Schedule& schedule, Sends sends);
/// "device 0 waits for device 1 (post send: ...); device 1 waits for device 0 (...)".
std::string to_string(const std::vector<Stuck>& cycle);

}  // namespace shard::pipeline
