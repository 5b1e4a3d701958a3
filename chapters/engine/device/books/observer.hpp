#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/device/books/ledger.hpp"
#include "engine/device/device.hpp"

namespace shard {

/// An operation on tensors, as its observers hear of it.
struct Operation {
  std::string_view function;            ///< "matmul", "relu"
  std::span<const Tensor* const> from;  ///< what it reads
  const Tensor* to = nullptr;           ///< what it writes, maybe one of `from`; null for numbers on the host
  Index flops = 0;                      ///< of a matrix product
  std::vector<bool> transposed = {};    ///< of a matrix product: whether it reads the operand transposed
};

/// How a tensor lies over devices, as its layout says: a letter for each axis.
struct Lying {
  Index group;                         ///< Communicator::group_id()
  std::vector<std::string> axes = {};  ///< of a mesh; empty for a group
  std::vector<std::string> letters;    ///< "R", "S0", "P", "O"; of a mesh, one for each axis
  Shape whole;
  std::vector<Range> mine = {};  ///< this device's part; empty where it has none, or follows no rule
};

/// Is notified of each operation and allocation of this device. Recorders and clocks derive from it. To observe
/// what a device calls, wrap its communicators (wrapped_communicator.hpp).
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

  /// \name The same, for those who tell tensors apart: `memory` is Tensor::memory() of the tensors on it
  /// @{
  virtual void begins(const Operation& /*operation*/) {}
  virtual void computed(const Operation& /*operation*/) {}
  virtual void made(const void* /*memory*/, Purpose /*purpose*/, Index /*bytes*/) {}
  virtual void freed(const void* /*memory*/) {}
  virtual void moved(const void* /*memory*/, Purpose /*to*/) {}
  /// @}

  /// The call with this Request::event has sent messages to a device of the job; -1: a library chose to whom.
  virtual void sent(Index /*event*/, int /*to*/, const Traffic& /*messages*/) {}
  /// A layout was made of this tensor.
  virtual void laid(const Tensor& /*local*/, const Lying& /*lying*/) {}
  /// This is a parameter, or the gradient of one.
  virtual void named(const Tensor& /*tensor*/, const std::string& /*name*/) {}
  /// This group lies along an axis of a mesh, or several: "data,expert".
  virtual void group_named(Index /*group*/, const std::string& /*name*/) {}
  /// What follows is "exact mode" or "step 1". `is_step`: a step of training, or the one step of a command.
  virtual void section(const std::string& /*name*/, bool /*is_step*/) {}
  /// A result differs from its reference: a line about it.
  virtual void differs(const std::string& /*line*/) {}
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

/// \name What observers hear from engines and commands
/// @{
void note_layout(const Tensor& local, const Lying& lying);
void note_name(const Tensor& tensor, const std::string& name);
void note_group(Index group, const std::string& name);
void note_section(const std::string& name, bool is_step);
/// @}

}  // namespace shard
