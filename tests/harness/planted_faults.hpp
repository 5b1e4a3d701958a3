#pragma once

/// Mistakes that a test plants in the group under test, to see that a comparison notices them. Only on the
/// emulator: a message of NCCL cannot be changed while it is sent.

#include <cstdint>
#include <optional>

namespace shard::testing {

/// Every device plants the same faults.
struct Faults {
  /// Leaves out the k-th call. A collective then returns its argument. A message, or a broadcast tensor,
  /// arrives as zeros of its shape.
  std::optional<std::int64_t> leave_out_call;
  /// Adds 1 to the first number of the k-th message with content that device `corrupting_device` of the group
  /// sends.
  std::optional<std::int64_t> corrupt_message;
  int corrupting_device = 0;
  /// Adds 1,000 to 3,000 to every number of that message instead. Networks that round may lose a 1, and a
  /// softmax ignores a common shift.
  bool corrupts_all = false;
};

/// Plants faults and counts anew; `plant_faults({})` removes them. The group under test becomes a new group
/// of the same devices. A collective.
void plant_faults(const Faults& faults);
/// The calls made by this device since then, and the messages with content that it sent.
std::int64_t calls_made();
std::int64_t messages_sent();

}  // namespace shard::testing
