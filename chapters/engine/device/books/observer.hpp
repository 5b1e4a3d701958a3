#pragma once

#include <string_view>

#include "engine/device/device.hpp"

namespace shard {

/// Is notified of each operation and allocation of this device. Recorders and clocks derive from it. To observe
/// what a device sends, wrap its communicators (wrapped_communicator.hpp).
class Observer {
 public:
  virtual ~Observer() = default;

  /// c = a b is about to be computed, or c += a b. Not called when an extent is 0.
  virtual void product(Operand /*a*/, Operand /*b*/, const Tensor& /*c*/, bool /*accumulates*/) {}
  /// An operation by elements or rows, "relu" or "adam_update", on a tensor with this number of elements.
  virtual void elementwise(std::string_view /*function*/, Index /*elements*/) {}
  /// The device has allocated, or freed, this many bytes.
  virtual void allocated(Purpose /*purpose*/, Index /*bytes*/) {}
  virtual void released(Purpose /*purpose*/, Index /*bytes*/) {}
};

/// Registers an observer during its lifetime.
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
