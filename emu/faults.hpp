#pragma once

#include <cstdint>
#include <optional>

namespace shard::emu {

/// Mistakes that a test plants, to see that a comparison notices them. Every device sets the same.
struct Faults {
  /// Leaves out the k-th call: a collective returns what it was given, a receive zeros of the sender's shape.
  std::optional<std::int64_t> leave_out_call;
  /// Adds 1 to the first number of the k-th message with content that device `corrupting_device` sends.
  std::optional<std::int64_t> corrupt_message;
  int corrupting_device = 0;
};

/// Plants them and starts counting anew; `plant_faults({})` removes them.
void plant_faults(const Faults& faults);
/// Calls made, and messages with content sent, by this device since then.
std::int64_t calls_made();
std::int64_t messages_sent();

}  // namespace shard::emu
