#pragma once

#include "engine/device/communicator/wrapped_communicator.hpp"
#include "engine/device/error.hpp"

namespace shard {

/// The error of a false claim that all members of a group hold the same tensor. All members throw it, and no other
/// device does.
class FalseClaim : public Error {
 public:
  FalseClaim(int members, const std::string& message) : Error(Code::mismatch, message), members_(members) {}
  int members() const { return members_; }

 private:
  int members_;
};

/// The communicator of a checked run. `Replicated x(group, t)` claims that all devices hold the same tensor.
/// This class verifies each claim, with one control message. An error names the first element that differs,
/// both values, and two devices that hold them: one of the majority, and the first one outside of it.
class CheckedCommunicator : public WrappedCommunicator {
 public:
  using WrappedCommunicator::WrappedCommunicator;

  Future<CallResult> call(Request&& request) override;

 protected:
  std::unique_ptr<Communicator> wrap(std::unique_ptr<Communicator> part) override {
    return std::make_unique<CheckedCommunicator>(std::move(part));
  }

 private:
  /// \throws FalseClaim unless all members hold the same shape and the same bits.
  void verify(const Tensor& t);
  std::string first_difference(const Tensor& t, int majority, int odd);
};

}  // namespace shard
