#pragma once

/// The control plane: how a device waits for others, finds deadlocks and reports errors. Devices that are
/// processes send one another messages for this; devices of one process run one at a time.

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/error.hpp"
#include "engine/device/runtime/watchdog/deadlock.hpp"

namespace shard::runtime {

class ControlPlane {
 public:
  ControlPlane();
  ~ControlPlane();
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;
  /// The current device's.
  static ControlPlane& instance();

  int id() const { return id_; }
  int size() const { return size_; }

  /// Registers a group's counts of this device's posts, by slot. The counts of a removed group are kept, since
  /// other devices may still wait for messages in flight.
  void add(Index group, const std::map<Index, Index>& posted) { posted_[group] = &posted; }
  void remove(Index group);

  /// Registers the stream. wait_for calls `advance`, which must not wait, since other devices may need this
  /// device's calls in flight. `in_flight` is as in Blocked; `calls` is the number of calls of this device.
  void connect_stream(std::function<void()> advance,
                      std::function<std::vector<Blocked::Dependencies>()> in_flight,
                      std::function<Index()> calls);

  /// Returns when `is_done`. Calls in flight proceed. Calls `dependencies` in a long wait. \throws Error deadlock
  void wait_for(const std::string& what, const std::function<Blocked::Dependencies()>& dependencies,
                const std::function<bool()>& is_done);

  /// One wait. Construct it when the wait begins, and call `idle` repeatedly while nothing happens.
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

   private:
    static const int spins_before_a_pause;
    void pause(const std::function<Blocked()>& describe);
    void listen(const std::function<Blocked()>& describe);

    [[maybe_unused]] bool is_noted_ = false;  // of a process: whether this device's flight record has it
    int spins_ = 0;
    std::chrono::steady_clock::time_point since_{}, listened_{};
  };

  /// Before a device with calls in flight computes: lets the other devices of its process run.
  static void yield_before_work();

  /// Call it when this device begins no more calls, and waits for the others to end.
  void is_at_end() { is_at_end_ = true; }
  /// Call it when all devices are at the end: this ends the search for deadlocks.
  void all_are_at_end();

  /// Ends the whole job with this exit code. The line is printed once: by the first device that fails, or, without
  /// flight records (flight_record.hpp), by device 0 if it still answers.
  [[noreturn]] void fail(Code code, const std::string& line);

  /// Begins the job. Call it before any group is made.
  void start(int& argc, char**& argv);
  /// Ends the job. Call it when all groups are destroyed. The process must end with this exit code.
  void finish(int exit_code);
  /// The state of this device, for the search for deadlocks.
  DeviceState my_state(Blocked blocked) const;

 private:
  struct Peers;  // the messages of the control plane

  std::unique_ptr<Peers> peers_;
  int id_ = 0;
  int size_ = 1;
  std::function<void()> advance_ = [] {};
  std::function<std::vector<Blocked::Dependencies>()> in_flight_ = [] {
    return std::vector<Blocked::Dependencies>();
  };
  std::map<Index, const std::map<Index, Index>*> posted_;  // by group
  std::map<Index, std::map<Index, Index>> removed_;        // the same of the groups that were removed last
  bool is_at_end_ = false;
  std::function<Index()> calls_ = [] { return Index{0}; };
};

/// Prints the line on stderr in one write, so that lines of several devices do not mix. Escapes control
/// characters, which a terminal would obey.
void print_error(const std::string& line);
/// \throws Error deadlock. Also discards this device's counts of messages.
[[noreturn]] void throw_deadlock(const std::string& line);

}  // namespace shard::runtime
