#pragma once

/// Whose turn it is. Devices take turns in the order of their ids: each runs until it waits. A device that
/// waits is passed over until something happens for it, or until nobody else can go on. So what a program
/// does, and in which order, follows from the program alone.

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "emu/local/fibre.hpp"
#include "engine/device/runtime/watchdog/deadlock.hpp"
#include "engine/device/this_device.hpp"

namespace shard::local {

class Turns {
 public:
  /// Those of the job that runs.
  static Turns& instance();

  /// Runs the body on each device, until all have ended. The first exception that leaves it on a device ends the
  /// job, and is thrown here; what the other devices hold then is lost.
  void run(int devices, const std::function<void()>& body);
  /// How many jobs have begun in this process.
  int job() const { return job_; }
  int devices() const { return static_cast<int>(seats_.size()); }

  /// The device that runs has to wait. Returns when the others have had their turns. \throws Error deadlock when
  /// it can never go on
  void pass(const std::function<runtime::Blocked()>& describe);
  /// The device that runs could go on. Now and then it lets the others go first.
  void lend();
  /// What each device does, a line each, on stderr: for a debugger.
  void print() const;
  /// Something has happened for which a device may have waited.
  void note_move() { ++moves_; }
  /// The same, for which this device may have waited: it has a turn.
  void wake(int device) { may_go_on_[static_cast<std::size_t>(device)] = true; }

 private:
  struct Seat {
    explicit Seat(int id) : device(id) {}
    Device device;
    std::unique_ptr<Fibre> fibre;
    const std::function<runtime::Blocked()>* describe = nullptr;  // while it waits
    std::optional<std::string> verdict;
    std::size_t pieces_of_work = 0;
  };

  void search_for_deadlock();
  /// What a device says of itself while it waits.
  static std::optional<runtime::DeviceState> state_of(Seat& seat);

  void let_each_go_on();

  std::vector<std::unique_ptr<Seat>> seats_;
  std::vector<bool> may_go_on_;  // by device: what it waits for may be there
  std::exception_ptr error_;
  Seat* running_ = nullptr;
  int job_ = 0;
  std::size_t moves_ = 0;
  std::size_t rounds_ = 0, rounds_without_move_ = 0;
};

/// The same, to be called from a debugger.
void print_devices();

}  // namespace shard::local
