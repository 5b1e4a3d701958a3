#pragma once

#include <string_view>

#include "engine/device/device.hpp"

namespace shard {

/// Hears of what this device computes and holds, as it happens: a recorder, or a clock. What it sends is heard
/// of by wrapping its communicators (wrapped_communicator.hpp).
class Observer {
 public:
  virtual ~Observer() = default;

  /// c = a b is about to be computed, or c += a b. Not called when an extent is 0.
  virtual void product(Operand /*a*/, Operand /*b*/, const Tensor& /*c*/, bool /*accumulates*/) {}
  /// A function of every element, or of every row, of a tensor of so many elements: "relu", "adam_update".
  virtual void elementwise(std::string_view /*function*/, Index /*elements*/) {}
  /// So many bytes are held from now on, or no longer.
  virtual void allocated(Purpose /*purpose*/, Index /*bytes*/) {}
  virtual void released(Purpose /*purpose*/, Index /*bytes*/) {}
};

/// While it lives, an observer hears of this device.
class Observation {
 public:
  explicit Observation(Observer& observer);
  ~Observation();
  Observation(const Observation&) = delete;
  Observation& operator=(const Observation&) = delete;

 private:
  Observer& observer_;
};

}  // namespace shard
