#pragma once

#include <string_view>

#include "engine/device/device.hpp"

namespace shard {

/// An observer is told what this device computes and holds, when it happens. A recorder and a clock are
/// observers. To observe what a device sends, wrap its communicators (wrapped_communicator.hpp).
class Observer {
 public:
  virtual ~Observer() = default;

  /// c = a b is about to be computed, or c += a b. Not called when an extent is 0.
  virtual void product(Operand /*a*/, Operand /*b*/, const Tensor& /*c*/, bool /*accumulates*/) {}
  /// A function of every element, or of every row, of a tensor of this number of elements: "relu", "adam_update".
  virtual void elementwise(std::string_view /*function*/, Index /*elements*/) {}
  /// The device has allocated, or freed, this many bytes.
  virtual void allocated(Purpose /*purpose*/, Index /*bytes*/) {}
  virtual void released(Purpose /*purpose*/, Index /*bytes*/) {}
};

/// An observer is called during the lifetime of this object.
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
