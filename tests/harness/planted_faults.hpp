#pragma once

/// Mistakes that a test plants in the group under test, to see that a comparison notices them. On the
/// emulator only: a message of NCCL cannot be changed on its way.

#include <cstdint>
#include <optional>

namespace shard::testing {

/// Every device plants the same.
struct Faults {
  /// Leaves out the k-th call: a collective returns what it was given. A message arrives as zeros of its
  /// shape, and so does what is broadcast.
  std::optional<std::int64_t> leave_out_call;
  /// Adds 1 to the first number of the k-th message with content that device `corrupting_device` of the group
  /// sends.
  std::optional<std::int64_t> corrupt_message;
  int corrupting_device = 0;
  /// Adds 1,000 to 3,000 to every number of that message instead: for networks that round, where a 1 may vanish,
  /// and that have softmaxes, where a common shift does.
  bool corrupts_all = false;
};

/// Plants them and starts counting anew; `plant_faults({})` removes them. Each time, the group under test is a
/// new one of the same devices. A collective.
void plant_faults(const Faults& faults);
/// Calls made, and messages with content sent, by this device since then.
std::int64_t calls_made();
std::int64_t messages_sent();

}  // namespace shard::testing
