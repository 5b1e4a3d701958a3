#pragma once

#include <optional>
#include <string>

#include "engine/device/device.hpp"
#include "engine/engines/trainable.hpp"
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

/// How a router chooses experts for the tokens of a global batch. It does not depend on how the batch is cut.
struct RoutingRule {
  Index top_k = 1;                               ///< experts for each token
  std::optional<double> capacity_factor = 1.25;  ///< bounds an expert's choices; none: no bound
  double aux_weight = 0.01;                      ///< of the balancing loss
  double skew = 0;                               ///< lowers the logit of expert e by skew · e

  /// The most choices of one expert: ceil(factor k B / E) (GShard, section 2.2; Switch, section 2.2), or all.
  Index capacity(Index batch, Index num_experts) const;
};

/// \throws Error usage when a token needs more experts than there are, or none
void require_experts(const RoutingRule& rule, Index num_experts);

/// A mixture's router, and the layers of its experts.
template <Layout L>
Trainables router_and_experts(Replicated& router, std::vector<std::vector<L>>& experts) {
  Trainables all;
  all.add(router_name(), router);
  for (std::size_t e = 0; e < experts.size(); ++e)
    for (std::size_t l = 0; l < experts[e].size(); ++l)
      all.add(expert_layer_name(static_cast<Index>(e), static_cast<Index>(l)), experts[e][l]);
  return all;
}

}  // namespace shard
