#pragma once

/// Which experts a token goes to in an exact problem, from the definitions: shares nothing with a router.

#include <optional>
#include <vector>

#include "engine/workloads/workload.hpp"

namespace shard {

inline constexpr float logit_step = 128;  ///< exp(-128) is 0 in float32

/// What one token's router output comes to.
struct ExactToken {
  std::vector<double> probabilities;  ///< of each expert
  std::vector<Index> chosen;          ///< k of them
  std::vector<double> gates;          ///< k
  std::vector<bool> is_kept;          ///< k
};

/// The choice of one token by its logits, or nothing if its gates would not be exact.
std::optional<ExactToken> exact_choice(const std::vector<double>& logits, Index top_k);

/// Every token's choices, and which of them find a slot: ranks first, then tokens.
/// \throws Error internal when a token's gates would not be exact
std::vector<ExactToken> exact_choices(const ExactProblem& problem);

}  // namespace shard
