#pragma once

/// The device that runs the code. A process on MPI or on a GPU has one; a local job has many, one after the
/// other. Whatever belongs to a device (its books, its stream, its records) is a part of this object, so
/// nothing of a device is a global variable.

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
  bool is_inference = false;  ///< tapes keep nothing then (engine/engines/tape.hpp)

  /// The device's one object of this type, made when it is asked for first.
  template <class Part>
  Part& part() {
    static const std::size_t number = next_number();
    if (number >= parts_.size() || parts_[number] == nullptr) {
      auto made = std::make_shared<Part>();  // which may ask for other parts
      if (number >= parts_.size()) parts_.resize(number + 1);
      parts_[number] = std::move(made);
      made_.push_back(number);
    }
    return *static_cast<Part*>(parts_[number].get());
  }

  /// While it lives, the code of this thread runs on that device.
  class Scope;

 private:
  static std::size_t next_number();

  std::vector<std::shared_ptr<void>> parts_;  // by number
  std::vector<std::size_t> made_;             // their numbers, the first one first
};

/// The device that runs this code.
Device& device();

class Device::Scope {
 public:
  explicit Scope(Device& device);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Device* before_;
};

}  // namespace shard
