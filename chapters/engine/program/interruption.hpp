#pragma once

#include <chrono>
#include <csignal>
#include <optional>

#include "engine/device/device.hpp"

namespace shard {

/// While such an object lives, SIGINT (Ctrl-C) and SIGTERM end a long run between two steps. A second signal
/// ends the process at once.
class Interruption {
 public:
  Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;
  ~Interruption();

  /// Checks for a signal after a step, on every device. Device 0 throws for all; another one only if the job
  /// still runs a second later. \throws Error interrupted: "interrupted at step 120"
  void look(const Communicator& group, Index step);

 private:
  struct sigaction before_interrupt_ {};
  struct sigaction before_terminate_ {};
  std::optional<std::chrono::steady_clock::time_point> seen_;
};

}  // namespace shard
