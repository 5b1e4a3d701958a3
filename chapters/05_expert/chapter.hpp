#pragma once

#include "costs.hpp"
#include "engine/program/chapter.hpp"
#include "exact_mixture.hpp"
#include "expert.hpp"
#include "single_mixture.hpp"

namespace shard {

inline Chapter this_chapter() {
  auto sharded = [](Communicator& group, const EngineOptions& options) {
    return std::make_unique<ExpertParallel>(group, options.routing);
  };
  auto single = [](Communicator& group, const EngineOptions& options) { return std::make_unique<SingleMixture>(group, options.routing); };
  auto variant = [](std::string name, std::string summary, auto make, auto costs, Index top_k,
                    const char* reference) {
    Variant v{std::move(name), std::move(summary), make, costs};
    v.top_k = top_k;
    v.reference = reference;
    return v;
  };
  Network mixture;
  mixture.has_experts = true;
  mixture.model_of = mixture_of;
  mixture.exact_problem = make_exact_mixture;
  mixture.solve = solve_mixture;
  mixture.live_problem = make_live_mixture;
  mixture.route = route_mixture;
  return {"05",
          "expert parallel",
          {variant("switch", "one expert a token; experts divided over the devices", sharded,
                   expert_parallel_costs, 1, "switch-single"),
           variant("top-k", "several experts a token, 2 if not told", sharded, expert_parallel_costs, 2,
                   "top-k-single"),
           variant("switch-single", "the mixture that switch must equal, on one device", single,
                   single_mixture_costs, 1, "switch-single"),
           variant("top-k-single", "the mixture that top-k must equal, on one device", single,
                   single_mixture_costs, 2, "top-k-single")},
          /*defaults=*/{},
          /*other_names=*/{{"gshard", "top-k"}},
          mixture};
}

}  // namespace shard
