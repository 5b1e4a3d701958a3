#pragma once

#include <optional>

#include "engine/device/device.hpp"

namespace shard {

/// How a router chooses experts for the tokens of a global batch. Nothing here depends on how the batch is
/// cut.
struct RoutingRule {
  Index top_k = 1;                               ///< experts for each token
  std::optional<double> capacity_factor = 1.25;  ///< bounds what an expert takes; none: it takes everything
  double aux_weight = 0.01;                      ///< of the loss that balances the load
  double skew = 0;                               ///< lowers the logit of expert e by skew · e

  /// Choices that one expert takes: ceil(factor k B / E) (GShard, section 2.2; Switch, section 2.2), or all.
  Index capacity(Index batch, Index num_experts) const;
};

/// \throws Error usage when a token is to have more experts than there are, or none
void require_experts(const RoutingRule& rule, Index num_experts);

}  // namespace shard
