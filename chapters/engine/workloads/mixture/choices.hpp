#pragma once

/// The experts of each token in an exact problem, from the definitions. Shares no code with a router.

#include <optional>
#include <vector>

#include "engine/workloads/workload.hpp"

namespace shard {

inline constexpr float logit_step = 128;  ///< exp(-128) is 0 in float32

/// The routing of one token.
struct ExactToken {
  std::vector<double> probabilities;  ///< of each expert
  std::vector<Index> chosen;          ///< k of them
  std::vector<double> gates;          ///< k
  std::vector<bool> is_kept;          ///< k
};

/// The choice of one token by its logits; nothing if its gates are not exact.
std::optional<ExactToken> exact_choice(const std::vector<double>& logits, Index top_k);

/// The choices of every token. Slots are given by rank first, then by token. \throws Error internal when a
/// token's gates are not exact
std::vector<ExactToken> exact_choices(const ExactProblem& problem);

}  // namespace shard
