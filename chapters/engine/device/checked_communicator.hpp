#pragma once

#include "engine/device/wrapped_communicator.hpp"

namespace shard {

/// A checked run: whoever claims that a tensor is the same on every device, `Replicated x(group, t)`, is held
/// to it, for one control message a claim.
class CheckedCommunicator : public WrappedCommunicator {
 public:
  using WrappedCommunicator::WrappedCommunicator;

  /// \throws Error mismatch unless all members hold the same shape and the same bits.
  void verify_replicated(const Tensor& t) override;

 protected:
  std::unique_ptr<Communicator> wrap(std::unique_ptr<Communicator> part) override;
};

}  // namespace shard
