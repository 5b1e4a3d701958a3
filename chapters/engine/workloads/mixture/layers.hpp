#pragma once

/// A mixture's parameters in an engine, for its optimizer.

#include "engine/engines/trainable.hpp"
#include "engine/workloads/mixture/model.hpp"

namespace shard {

/// A mixture's router, and the layers of its experts.
template <Layout L>
Trainables router_and_experts(Replicated& router, std::vector<std::vector<L>>& experts) {
  Trainables all;
  all.add(router_name(), router);
  for (std::size_t e = 0; e < experts.size(); ++e)
    for (std::size_t l = 0; l < experts[e].size(); ++l)
      all.add(expert_layer_name(static_cast<Index>(e), static_cast<Index>(l)), experts[e][l]);
  return all;
}

}  // namespace shard
