#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/device/communicator/wrapped_communicator.hpp"

namespace shard {

/// What goes wrong on purpose, so that a reader sees what is said of it: on one device, at one of its calls.
struct Fault {
  enum class Kind {
    kill,    ///< the device is killed, a tenth of a second later, when the others wait for it
    exit,    ///< it leaves the program with code 0, likewise
    raise,   ///< it throws an exception ("throw" on the command line)
    stop,    ///< it is stopped, as by a debugger; SIGCONT lets it go on
    delay,   ///< it makes the call a second later
    skip,    ///< it leaves the call out, and goes on with its argument
    corrupt  ///< the first element of what it passes is one more
  };
  int device = 0;
  Index call = 1;  ///< the device's calls are counted from 1, as in errors
  Kind kind = Kind::kill;
};

/// "device=2,call=17,kind=kill", or nothing where the text is no fault.
std::optional<Fault> fault_from(const std::string& text);

/// What a call returns that was left out: its argument. A post_receive returns zeros.
CallResult left_out(Request&& request);

/// A communicator, and all parts of it, in which a fault happens.
class FaultyCommunicator : public WrappedCommunicator {
 public:
  FaultyCommunicator(Communicator& inner, const Fault& fault)
      : FaultyCommunicator(inner, fault, std::make_shared<Index>(0)) {}

  /// Calls that this device has made, in all groups.
  Index calls() const { return *calls_; }

  Future<CallResult> call(Request&& request) override;

 protected:
  std::unique_ptr<Communicator> wrap(std::unique_ptr<Communicator> part) override;

 private:
  FaultyCommunicator(Communicator& inner, const Fault& fault, std::shared_ptr<Index> calls)
      : WrappedCommunicator(inner), fault_(fault), calls_(std::move(calls)) {}
  friend class FaultyPart;

  /// The device's next call is the one: kills, stops or delays this device.
  void happen() const;

  Fault fault_;
  std::shared_ptr<Index> calls_;  // of this device, in all groups
};

}  // namespace shard
