#pragma once

/// Exact problems of a mixture: mixture_problem.cpp makes them, mixture_choices.cpp says where tokens go,
/// mixture_solution.cpp has the results; mixture_live_problem.cpp makes those in which every number matters.

#include "engine/workloads/mixture.hpp"

namespace shard {

/// Sums are those of integers times powers of two, and so are gates: logits are multiples of 128, and
/// exp(−128) is 0 in float32, so a token's probabilities are shared equally by the experts whose logits are
/// the row's largest. Those are one, two, four, ... by construction. The weight of the balancing loss
/// becomes, if it is not 0, one by which its derivative is an integer; skew becomes 0. `digits`: the input's,
/// if any.
/// \throws Error internal when no such problem is found
ExactProblem make_exact_mixture(const Mixture& mixture, Index batch, std::uint64_t seed,
                                const Digits* digits);

/// Output, dL/dx and each parameter's gradient, token by token from the definitions, in arithmetic that is
/// exact; shares nothing with a router and engines. \throws Error internal when a sum or a gate would not be
/// exact in float32
Solution solve_mixture(const ExactProblem& problem, Cause mistake);

/// Where the choices of the problem go, again from the definitions.
RoutedCounts route_mixture(const ExactProblem& problem, int devices);

/// A problem in which every number that is sent affects a result. All numbers are positive, and no two
/// experts are alike. Every device receives as many rows as it sends, so that shapes stay the same when a
/// call is left out. Device 0 alone fills expert 0 to its capacity. So a wrong count of its choices changes
/// the balancing loss, but not which tokens are sent. (Otherwise the devices would disagree on the rows that
/// arrive, and the job would end with that error.)
ExactProblem make_live_mixture(Index num_layers, Index top_k, int devices);

}  // namespace shard
