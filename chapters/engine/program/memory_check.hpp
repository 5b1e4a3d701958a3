#pragma once

#include "engine/program/commands.hpp"

namespace shard {

/// For training, before anything is allocated: whether this host has room for what its devices are to hold,
/// at the least. Sizes may be so large that even a list of the parameters would not fit.
/// \throws Error missing, with both numbers
/// @{
/// Of the parameters: them, their gradients and the optimizer's state, and what exact mode keeps of them.
void require_room_for_parameters(const Communicator& group, const Workload& network,
                                 const Arguments& arguments);
/// Of a step: what its closed form says. Without one, what all devices together hold at the least: parameters,
/// gradients, state, and what the backward pass needs of the forward pass. A collective.
void require_room_for_step(Communicator& group, const Variant& variant, const Workload& network,
                           const ShardedEngine& engine, const Arguments& arguments);
/// @}

}  // namespace shard
