#pragma once

/// The vocabulary of a mixture of experts (chapter 05): how its router is told to choose, and where choices
/// went.

#include <optional>
#include <string>
#include <vector>

#include "engine/workloads/model.hpp"

namespace shard {

/// How a router chooses experts for the tokens of a global batch. Nothing here depends on how the batch is
/// cut.
struct Routing {
  Index top_k = 1;                               ///< experts for each token
  std::optional<double> capacity_factor = 1.25;  ///< bounds what an expert takes; none: it takes everything
  double aux_weight = 0.01;                      ///< of the loss that balances the load
  double skew = 0;                               ///< lowers the logit of expert e by skew · e

  /// Choices that one expert takes: ceil(factor k B / E) (GShard, section 2.2; Switch, section 2.2), or all.
  Index capacity(Index batch, Index num_experts) const;
};

/// \throws Error usage when a token is to have more experts than there are, or none
void require_experts(const Routing& routing, Index num_experts);

/// Where the choices of one global batch went: what costs of a mixture depend on.
struct RoutedCounts {
  int devices = 0;  ///< that the batch is divided over; 1: it is not
  Index top_k = 0;
  Index num_experts = 0;
  std::vector<Index> chosen;  ///< (devices, top_k, experts): choices of a device's tokens, by rank and expert
  std::vector<Index> kept;    ///< the same, of those that found a slot

  Index at(const std::vector<Index>& counts, int device, Index rank, Index expert) const {
    return counts[static_cast<std::size_t>((device * top_k + rank) * num_experts + expert)];
  }
  /// Kept choices of a device's tokens for one expert, and of all devices' tokens.
  Index kept_from(int device, Index expert) const;
  Index kept_for(Index expert) const;
  /// Choices of all devices' tokens for one expert, before any was dropped.
  Index chosen_for(Index expert) const;
  bool operator==(const RoutedCounts&) const = default;
};

/// How evenly experts and devices were used, over many batches.
class Balance {
 public:
  void add(const RoutedCounts& counts);
  bool is_empty() const { return chosen_.empty(); }
  /// A few lines: share of choices for each expert, choices dropped, load of the busiest device.
  std::string describe() const;

 private:
  int devices_ = 0;
  std::vector<Index> chosen_;  // by expert
  std::vector<Index> kept_;    // by expert
};

}  // namespace shard
