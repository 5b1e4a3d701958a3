#pragma once

#include <chrono>
#include <csignal>
#include <optional>
#include <string>

#include "engine/device/device.hpp"

namespace shard {

/// Shows the progress of training. On a terminal, this is one line that changes twice a second, with the time
/// of a step and the time left. Elsewhere, a line is printed after each fifth of the steps and every ten
/// seconds. Only the device that prints uses it.
class Progress {
 public:
  explicit Progress(Index steps);
  /// Called after step `step`, counted from 1, which had this loss.
  void show(Index step, double loss);

 private:
  using Clock = std::chrono::steady_clock;

  /// "12.34 ms/step, 1:23 left".
  std::string pace(Index step, Clock::time_point now) const;

  Index steps_;
  bool is_terminal_;
  bool has_open_line_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point shown_ = start_;
};

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
