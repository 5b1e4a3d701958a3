#include "costs.hpp"
#include "engine/program/registry.hpp"
#include "expert.hpp"
#include "single_mixture.hpp"

namespace shard::expert {

/// A mixture whose experts are divided, with one expert a token, or with several.
Variant divided(const std::string& name, const std::string& summary, Index top_k) {
  return {
      .name = name,
      .summary = summary,
      .make = [](Communicator& group, const Workload& w,
                 const Options&) { return std::make_unique<ExpertParallel>(group, as_mixture(w).rule()); },
      .costs = [](const Setting& s, const Options&) { return expert_parallel_costs(s, ExpertSizes(s)); },
      .workload = &mixture(top_k)};
}

/// The mixture on one device that it must equal.
Variant single(const std::string& of, Index top_k) {
  return {.name = of + "-single",
          .summary = "the mixture that " + of + " must equal, on one device",
          .make = [](Communicator& group, const Workload& w,
                     const Options&) { return std::make_unique<SingleMixture>(group, as_mixture(w).rule()); },
          .costs = [](const Setting& s, const Options&) { return single_mixture_costs(s); },
          .workload = &mixture(top_k),
          .is_reference = true};
}

const RegisteredChapter chapter({
    .title = "expert parallel",
    .variants = {divided("switch", "one expert a token; experts divided over the devices", 1),
                 divided("top-k", "several experts a token, 2 if not told", 2), single("switch", 1),
                 single("top-k", 2)},
    .strategies = {{"ep", "top-k"},
                   {"moe", "top-k"},
                   {"gshard", "top-k"},
                   {"mixtral", "top-k"},
                   {"switch-transformer", "switch"}},
});

}  // namespace shard::expert
