#pragma once

#include <chrono>
#include <csignal>
#include <optional>

#include "engine/device/device.hpp"

namespace shard {

/// Notices SIGINT (Ctrl-C) and SIGTERM between the steps of a long run, as long as it lives. A second signal
/// ends the process at once.
class Interruption {
 public:
  Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;
  ~Interruption();

  /// After a step, on every device. All devices get the signal, so device 0 speaks for all; another one only
  /// where device 0 is silent for a second. \throws Error interrupted: "interrupted at step 120"
  void look(const Communicator& group, Index step);

 private:
  struct sigaction before_interrupt_ {};
  struct sigaction before_terminate_ {};
  std::optional<std::chrono::steady_clock::time_point> seen_;
};

}  // namespace shard
