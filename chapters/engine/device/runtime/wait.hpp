#pragma once

/// The one place where a device waits for others.

#include <chrono>
#include <functional>

#include "engine/device/runtime/watchdog/deadlock.hpp"

namespace shard::runtime {

/// One wait. Construct it when the wait begins, and call `idle` repeatedly while nothing happens. `describe` says for
/// what the device waits (witness.hpp); it is called in a long wait only.
class Wait {
 public:
  Wait() = default;
  ~Wait();
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;
  /// Spins at first. Later, a process yields its core, then sleeps for microseconds, longer in longer waits; a
  /// device of emu/local lets the next one run. Also receives other devices' errors and searches for a deadlock.
  /// \throws Error deadlock, which says what each device waits for
  template <class Describe>
  void idle(const Describe& describe) {
    if (++spins_ >= spins_before_a_pause) pause(describe), listen(describe);
  }
  /// The same for a device that polls, and may do something else between two polls.
  template <class Describe>
  void poll(const Describe& describe) {
    if (++spins_ >= spins_before_a_pause) pause(describe);
    listen(describe);
  }

  /// Before a device with calls in flight computes: lets the other devices of its process run.
  static void let_others_run();
  /// Ends the search for deadlocks. Call it when all devices are at the end of the program.
  static void end_search();

 private:
  static const int spins_before_a_pause;
  void pause(const std::function<Blocked()>& describe);
  void listen(const std::function<Blocked()>& describe);

  [[maybe_unused]] bool is_noted_ = false;  // of a process: whether this device's flight record has it
  int spins_ = 0;
  std::chrono::steady_clock::time_point since_{}, listened_{};
};

}  // namespace shard::runtime
