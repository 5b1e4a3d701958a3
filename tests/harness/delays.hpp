#pragma once

/// Messages that come late, of tensors and of the control plane, to search for what holds only while messages
/// are fast.

#include <chrono>

namespace shard::testing {

/// From now on this device hears late, by a random time up to `longest`, that messages of calls are complete
/// (MPI_Test), and that the control plane has asked or answered (MPI_Iprobe): of so many of them, 0 to 1. The
/// random numbers are others in each process.
struct Delays {
  double of_calls, of_control;
  std::chrono::milliseconds longest;
};
void delay_messages(const Delays& delays);

}  // namespace shard::testing
