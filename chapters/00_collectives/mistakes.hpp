#pragma once

/// Mistakes on purpose, to see how they end: each of these throws on every device.

#include <map>
#include <string>

#include "numbers.hpp"

namespace shard::primer {

inline void require_two_devices(const Communicator& group) {
  if (group.num_devices() < 2)
    throw Error(Code::usage, "00_collectives: --mistake: expected at least 2 devices, given 1");
}

/// Device 1 makes another call than everybody else. Error mismatch, exit code 81.
inline void disagree(Communicator& group) {
  require_two_devices(group);
  Tensor t = addends(group, 2);
  if (group.device_id() == 1)
    group.all_gather_async(std::move(t), 0).get();
  else
    group.all_reduce_async(std::move(t), ReduceOp::sum).get();
}

/// Everybody sends to the right before anybody receives. Error deadlock, exit code 82.
inline void deadlock(Communicator& group) {
  require_two_devices(group);
  const int n = group.num_devices(), me = group.device_id();
  group.send((me + 1) % n, addends(group, 2));
  group.receive((me + n - 1) % n);
}

/// A matrix has axes 0 and 1. Error argument, exit code 84.
inline void axis(Communicator& group) {
  group.all_gather_async(addends(group, 2), 2).get();
}

inline const std::map<std::string, void (*)(Communicator&)> mistakes = {
    {"disagree", disagree}, {"deadlock", deadlock}, {"axis", axis}};

}  // namespace shard::primer
