#pragma once

/// Exact problems of a mixture. problem.cpp makes them and routes tokens, from the definitions and without the
/// code of a router; solution.cpp has the results.

#include <optional>
#include <vector>

#include "engine/workloads/mixture/mixture.hpp"
#include "engine/workloads/workload.hpp"

namespace shard {

/// Sums have integers times powers of two as addends, and gates are such numbers: logits are multiples of
/// 128, and exp(−128) is 0 in float32, so the experts with the row's largest logit share its probability
/// equally. Their number is 1, 2, 4, ... by construction. The weight of the balancing loss, if not 0, becomes
/// one for which its derivative is an integer; skew becomes 0. `digits`: the input's, or null.
/// \throws Error internal when no such problem is found
ExactProblem make_exact_mixture(const Mixture& mixture, Index batch, std::uint64_t seed,
                                const Digits* digits);

/// Output, dL/dx and each parameter's gradient, token by token from the definitions, in exact arithmetic.
/// Shares no code with routers and engines. \throws Error internal when a sum or a gate is not exact in
/// float32
Solution solve_mixture(const ExactProblem& problem, Cause mistake, Communicator& group);

/// The routing of the problem's choices, from the definitions.
RoutedCounts route_mixture(const ExactProblem& problem, int devices);

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
