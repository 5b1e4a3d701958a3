#pragma once

/// Mistakes on purpose, to see how they end: each of these throws on every device.

#include <map>
#include <string>

#include "scenes.hpp"

namespace shard::primer {

inline void require_two_devices() {
  if (n() < 2) throw Error(Code::usage, "00_collectives: --mistake: expected at least 2 devices, given 1");
}

/// Device 1 makes another call than everybody else. Error mismatch, exit code 81.
inline void disagree() {
  require_two_devices();
  Tensor t = addends(2);
  if (me() == 1)
    world().all_gather_async(std::move(t), 0).get();
  else
    world().all_reduce_async(std::move(t), ReduceOp::sum).get();
}

/// Everybody sends to the right before anybody receives. Error deadlock, exit code 82.
inline void deadlock() {
  require_two_devices();
  world().send((me() + 1) % n(), addends(2));
  world().receive((me() + n() - 1) % n());
}

/// A matrix has axes 0 and 1. Error argument, exit code 84.
inline void axis() {
  world().all_gather_async(addends(2), 2).get();
}

inline const std::map<std::string, void (*)()> mistakes = {
    {"disagree", disagree}, {"deadlock", deadlock}, {"axis", axis}};

}  // namespace shard::primer
