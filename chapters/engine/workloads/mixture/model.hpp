#pragma once

#include <string>

#include "engine/workloads/mlp/model.hpp"

namespace shard {

/// A mixture of experts: a router, and `num_experts` stacks of one shape, the experts.
struct MixtureModel : Model {
  Index num_experts = 0;
  bool operator==(const MixtureModel&) const = default;
};

/// \name Names of a mixture's parameters
/// @{
/// "router/weights": (model_dim, num_experts).
std::string router_name();
/// "expert_3/layer_0/weights", ...: shaped like the layers of a stack.
std::string expert_layer_name(Index expert, Index layer);
/// @}

/// The mixture with the names and shapes of a checkpoint. \throws Error file naming the parameter that is
/// missing, unknown or of the wrong shape
MixtureModel mixture_of(const Checkpoint& checkpoint);

}  // namespace shard
