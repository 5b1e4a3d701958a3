#pragma once

#include <memory>

#include "engine/engines/sharded_engine.hpp"

namespace shard {

/// An engine of these networks on one device. `train` compares a strategy's losses with its losses. It has no
/// strategy, and shares no code with the chapters. `alone` is a group of one device.
std::unique_ptr<ShardedEngine> unsharded_mlp(Communicator& alone);

}  // namespace shard
