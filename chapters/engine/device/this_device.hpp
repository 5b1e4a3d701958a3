#pragma once

/// The state of a device: its ledger, its stream, its records. It is no global variable, since a process of
/// emu/local has many devices, which run one at a time.

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "engine/device/call_site.hpp"

namespace shard {

class Device {
 public:
  explicit Device(int id = 0) : id(id) {}
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  int id;                     ///< in the job; 0 before a job begins
  SourceLine open_call;       ///< the line of the outermost call that runs now
  bool is_inference = false;  ///< then tapes keep no activations (engine/engines/tape.hpp)
  bool is_observed = false;   ///< there are observers (books/observer.hpp)

  /// The device's only object of this type, made at the first call.
  template <class State>
  State& state() {
    static const std::size_t number = next_number();
    if (number >= states_.size() || states_[number] == nullptr) {
      auto made = std::make_shared<State>();  // its constructor may make others
      if (number >= states_.size()) states_.resize(number + 1);
      states_[number] = std::move(made);
      made_.push_back(number);
    }
    return *static_cast<State*>(states_[number].get());
  }

  /// During its lifetime, this thread's current device is that one.
  class Scope {
   public:
    explicit Scope(Device& device);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Device* before_;
  };

 private:
  static std::size_t next_number();

  std::vector<std::shared_ptr<void>> states_;  // by number
  std::vector<std::size_t> made_;              // their numbers, in the order in which they were made
};

/// The current device.
Device& device();

}  // namespace shard
