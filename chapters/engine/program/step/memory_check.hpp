#pragma once

#include "engine/program/step/step.hpp"

namespace shard {

/// Checks, before training allocates anything, whether this host has the memory that its devices need at
/// least. Even a list of the parameters may be too large. \throws Error missing, with both numbers
/// @{
/// The parameters, their gradients and the optimizer's state, and the copies of exact mode.
void require_room_for_parameters(const Communicator& group, const Workload& network,
                                 const Training& training);
/// A step: its closed form. Without a form, the least that all devices together hold: parameters, gradients,
/// state, and what the backward pass needs of the forward pass. A collective.
void require_room_for_step(const Run& run, const ShardedEngine& engine);
/// @}

}  // namespace shard
