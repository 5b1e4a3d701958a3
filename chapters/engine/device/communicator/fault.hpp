#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/device/communicator/wrapped_communicator.hpp"

namespace shard {

/// A planted fault: one device misbehaves at one of its calls, so that a reader sees the error message.
struct Fault {
  enum class Kind {
    kill,    ///< the device is killed after 0.1 s, when the others wait for it
    exit,    ///< it exits with code 0 after 0.1 s
    raise,   ///< it throws an exception ("throw" on the command line)
    stop,    ///< it is stopped, as by a debugger, until SIGCONT
    delay,   ///< it makes the call 1 s later
    skip,    ///< it does not make the call, and uses its argument as the result
    corrupt  ///< it adds 1 to the first element of the tensor that it sends or receives
  };
  int device = 0;
  Index call = 1;  ///< the device's calls are counted from 1, as in errors
  Kind kind = Kind::kill;
};

/// Parses "device=2,call=17,kind=kill". Nothing for any other text.
std::optional<Fault> fault_from(const std::string& text);
/// The same text of a fault.
std::string text_of(const Fault& fault);

/// The result of a call that was skipped: its argument; zeros for a post_receive.
CallResult result_of_skipped(Request&& request);

/// A communicator that plants a fault in its own calls and those of groups split off it.
class FaultyCommunicator : public WrappedCommunicator {
 public:
  FaultyCommunicator(Communicator& inner, const Fault& fault) : WrappedCommunicator(inner), fault_(fault) {}
  FaultyCommunicator(std::unique_ptr<Communicator> part, const FaultyCommunicator& whole)
      : WrappedCommunicator(std::move(part)), fault_(whole.fault_), calls_(whole.calls_) {}

  /// Calls that this device has made, in all groups.
  Index calls() const { return *calls_; }

  Future<CallResult> call(Request&& request) override;

 protected:
  std::unique_ptr<Communicator> wrap(std::unique_ptr<Communicator> part) override {
    return std::make_unique<FaultyCommunicator>(std::move(part), *this);
  }

 private:
  /// Kills, ends, stops or delays this device, if the fault is of such a kind.
  void strike() const;

  Fault fault_;
  std::shared_ptr<Index> calls_ = std::make_shared<Index>(0);  // that this device has made in all groups
};

}  // namespace shard
