#include "engine/workloads/mixture/routing_rule.hpp"

#include <fmt/format.h>

#include <cmath>

namespace shard {

Index RoutingRule::capacity(Index batch, Index num_experts) const {
  const Index all = top_k * batch;
  if (!capacity_factor) return all;
  double wanted = std::ceil(*capacity_factor * static_cast<double>(all) / static_cast<double>(num_experts));
  return wanted < static_cast<double>(all) ? static_cast<Index>(wanted) : all;
}

void require_experts(const RoutingRule& rule, Index num_experts) {
  if (rule.top_k < 1 || rule.top_k > num_experts)
    throw Error(Code::usage, fmt::format("--top-k: expected 1 to {}, the number of experts, given {}",
                                         num_experts, rule.top_k));
}

}  // namespace shard
