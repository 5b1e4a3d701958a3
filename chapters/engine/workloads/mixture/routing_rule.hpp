#pragma once

#include <optional>

#include "engine/device/device.hpp"

namespace shard {

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

}  // namespace shard
