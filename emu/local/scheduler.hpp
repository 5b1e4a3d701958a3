#pragma once

/// The cooperative round-robin scheduler of the devices. Each runs until it waits, in the order of ids. A
/// waiting device is skipped until another one wakes it, or until no device is runnable. So the order of
/// execution is determined by the program alone.

#include <any>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "emu/local/absence.hpp"
#include "emu/local/fibre.hpp"
#include "engine/device/runtime/watchdog/deadlock.hpp"
#include "engine/device/this_device.hpp"

namespace shard::local {

class Scheduler {
 public:
  /// The scheduler of the current job; one without devices where none runs.
  static Scheduler& instance();

  /// Runs the body on each device that is not absent, until all have ended. The first exception that leaves a body
  /// ends the job and is rethrown here; the other devices' memory is then leaked. A device of a job may run a job of
  /// its own.
  static void run(int devices, const std::function<void()>& body, Absence* absence = nullptr);
  /// The devices of the job that do not run.
  Absence& absence() { return *absence_; }
  std::any shared_by_wires;  ///< what wire.cpp keeps for the job
  int devices() const { return static_cast<int>(scheduled_.size()); }

  /// The current device waits. Returns when it should test again whether it can proceed. \throws Error deadlock
  /// when it can never continue
  void wait(const std::function<runtime::Blocked()>& describe);
  /// Lets the other devices run first, once in 64 calls. The current device stays runnable.
  void yield();
  /// Prints what each device does on stderr, a line each. For debuggers.
  void print() const;
  /// Call it when an operation is posted or done, for which a device may wait.
  void note_progress() { ++progress_; }
  /// Makes a device runnable, since an operation of it is done.
  void wake(int device) { runnable_[static_cast<std::size_t>(device)] = true; }

 private:
  struct Scheduled {
    explicit Scheduled(int id) : device(id) {}
    Device device;
    std::unique_ptr<Fibre> fibre;                                 // null for an absent device
    const std::function<runtime::Blocked()>* describe = nullptr;  // its state, while it waits
    std::optional<std::string> deadlock;
    std::size_t pieces_of_work = 0;
  };

  void run_all(const std::function<void()>& body);
  void search_for_deadlock();
  /// A waiting device's state; nothing for one that runs.
  static std::optional<runtime::DeviceState> state_of(Scheduled& scheduled);
  void run_round();

  std::vector<std::unique_ptr<Scheduled>> scheduled_;
  std::vector<bool> runnable_;  // by device
  std::exception_ptr error_;
  Scheduled* running_ = nullptr;
  Absence nobody_;
  Absence* absence_ = &nobody_;
  std::size_t progress_ = 0;
  std::size_t rounds_ = 0, rounds_without_progress_ = 0;
};

/// Calls Scheduler::print. To be called from a debugger.
void print_devices();

}  // namespace shard::local
