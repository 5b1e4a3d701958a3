#pragma once

/// The independent float64 reference of each workload, with a bound on what float32 may make of it.

#include "engine/workloads/mixture.hpp"
#include "engine/workloads/mlp.hpp"
#include "tests/equivalence/mixture_reference.hpp"
#include "tests/equivalence/reference.hpp"

namespace shard::testing {

/// "output", "input_grad" and each parameter's gradient. \throws Error internal for a workload without one
inline std::map<std::string, Bounded> solve_bounded(const Workload& network,
                                                    const std::map<std::string, Bounded>& weights,
                                                    const Bounded& input, const Bounded& output_grad) {
  if (const auto* mlp = dynamic_cast<const Mlp*>(&network))
    return solve_bounded(mlp->model(), weights, input, output_grad);
  const Mixture& mixture = as_mixture(network);
  return solve_bounded_mixture(mixture.model(), mixture.rule(), weights, input, output_grad);
}

}  // namespace shard::testing
