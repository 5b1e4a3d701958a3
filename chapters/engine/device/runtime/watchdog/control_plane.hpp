#pragma once

/// The control plane: what a device does while it waits for others, and how it tells them that it cannot go
/// on. Devices that are processes send one another messages for that; those of one process take turns.

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
  /// That of the device that runs this code.
  static ControlPlane& instance();

  int id() const { return id_; }
  int size() const { return size_; }

  /// What this device posts in a group, by slot: counted there, and read here. Of a group that is removed the
  /// counts are kept, since others may still wait for messages that are on their way.
  void add(Index group, const std::map<Index, Index>& posted) { posted_[group] = &posted; }
  void remove(Index group);

  /// What a backend has in flight goes on while a device waits in a control collective: others may need it
  /// before they come there. `advance` must not wait; `in_flight` as in Blocked.
  /// `calls` is the number of calls that this device has made.
  void keep_going(std::function<void()> advance, std::function<std::vector<Blocked::Needs>()> in_flight,
                  std::function<Index()> calls);

  /// Returns when `is_done`. What is in flight goes on meanwhile. `needs` is asked where it waits for long.
  /// \throws Error deadlock
  void wait_for(const std::string& what, const std::function<Blocked::Needs()>& needs,
                const std::function<bool()>& is_done);

  /// Patience of one wait. Construct it when a wait begins and call `idle` as long as nothing happens.
  class Wait {
   public:
    Wait() = default;
    ~Wait();
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;
    /// Spins at first, later lets others have the core: a process yields it, then sleeps for microseconds, and
    /// longer when it has waited for long; a device of a local job gives its turn to the next.
    /// Now and then listens for errors of other devices, and takes part in the search for a deadlock.
    /// \throws Error deadlock, which says what each device waits for, when there is one.
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

    bool is_noted_ = false;  // in this device's record
    int spins_ = 0;
    std::chrono::steady_clock::time_point since_{}, listened_{};
  };

  /// A device with calls in flight is about to compute. The other devices of its process have a turn before.
  static void note_work();

  /// Says that this device begins no more calls: it waits for the others to end.
  void is_at_end() { is_at_end_ = true; }
  /// Says that all devices are at the end. What they still exchange, all of them do, so the search is over.
  void all_are_at_end();

  /// Ends the whole job with the error's code. The error is printed once: by the first device that fails, or,
  /// where devices keep no records (flight_record.hpp), by device 0 if it still answers.
  [[noreturn]] void fail(Code code, const std::string& line);

  /// Begins the job: before any group is made.
  void start(int& argc, char**& argv);
  /// Ends it: when all groups have gone. The process will end with this code.
  void finish(int exit_code);
  /// What this device says of itself.
  DeviceState my_state(Blocked blocked) const;

 private:
  struct Peers;  // how it hears of other devices

  std::unique_ptr<Peers> peers_;
  int id_ = 0;
  int size_ = 1;
  std::function<void()> advance_ = [] {};
  std::function<std::vector<Blocked::Needs>()> in_flight_ = [] { return std::vector<Blocked::Needs>(); };
  std::map<Index, const std::map<Index, Index>*> posted_;  // by group
  std::map<Index, std::map<Index, Index>> removed_;        // of groups removed last, by slot: what was posted
  bool is_at_end_ = false;
  std::function<Index()> calls_ = [] { return Index{0}; };
};

/// Prints the line on stderr in one write: between pieces of a line, other words could come. Control characters
/// of a text that somebody has passed do not reach the terminal.
void print_error(const std::string& line);
/// \throws Error deadlock. What this device has counted says nothing afterwards.
[[noreturn]] void throw_deadlock(const std::string& line);

}  // namespace shard::runtime
