#pragma once

/// Delays messages of tensors and of the control plane, to find code that relies on fast messages.

#include <chrono>

namespace shard::testing {

/// From now on, this device sees completed messages of calls (MPI_Test) and arrived messages of the control
/// plane (MPI_Iprobe) late, by a random time up to `longest`. The two fractions, 0 to 1, say how many of them
/// are late. Random numbers differ between processes.
struct Delays {
  double of_calls, of_control;
  std::chrono::milliseconds longest;
};
void delay_messages(const Delays& delays);

}  // namespace shard::testing
