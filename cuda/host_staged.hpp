#pragma once

/// How devices that share a GPU send one another tensors: through the host's memory and over the wire, by the bodies
/// of the emulator. (NCCL takes one process for each GPU.) No stream of the GPU waits for another device.

#include "engine/device/runtime/collectives/collectives.hpp"

namespace shard::cuda {

class HostStaged : public runtime::DataPlane {
 public:
  /// Copies the argument to the host, runs the emulator's body, and copies to the GPU what that has written. The
  /// ledger counts the messages that are sent.
  runtime::Task body_of(runtime::Call& call) override;
};

}  // namespace shard::cuda
