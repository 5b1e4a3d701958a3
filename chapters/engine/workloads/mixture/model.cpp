#include "engine/workloads/mixture/model.hpp"

#include <fmt/format.h>

#include <cmath>
#include <set>

#include "engine/basics/printable.hpp"
#include "engine/weights/checkpoint.hpp"

namespace shard {

std::string router_name() {
  return "router/weights";
}

std::string expert_layer_name(Index expert, Index layer) {
  return fmt::format("expert_{}/{}", expert, layer_name(layer));
}

namespace {

/// Whether the parameters are exactly those of `layers` layers for each expert.
void require_expert_names(const Checkpoint& checkpoint, Index experts, Index layers) {
  std::set<std::string> wanted = {router_name()};
  for (Index e = 0; e < experts; ++e)
    for (Index l = 0; l < layers; ++l) wanted.insert(expert_layer_name(e, l));
  for (const std::string& name : checkpoint.names())
    if (!wanted.contains(name))
      refuse_parameter(checkpoint, "parameters",
                       fmt::format("{}, and for each of its {} columns an expert of equally many layers, "
                                   "expert_0/layer_0/weights, ... without a gap",
                                   router_name(), experts),
                       fmt::format("{}, one of them named {}, which is unknown", checkpoint.names().size(),
                                   printable(name, 60)));
}

}  // namespace

MixtureModel mixture_of(const Checkpoint& checkpoint) {
  const Shape router = matrix_shape(checkpoint, router_name());
  MixtureModel model;
  model.model_dim = router[0];
  model.num_experts = router[1];
  model.num_layers = (static_cast<Index>(checkpoint.names().size()) - 1) / model.num_experts;
  require_expert_names(checkpoint, model.num_experts, model.num_layers);
  model.hidden_dim = matrix_shape(checkpoint, expert_layer_name(0, 0))[1];
  for (Index e = 0; e < model.num_experts; ++e)
    for (Index l = 0; l < model.num_layers; ++l)
      require_parameter(checkpoint, expert_layer_name(e, l), model.shape(l));
  return model;
}

Index RoutingRule::capacity(Index batch, Index num_experts) const {
  const Index all = top_k * batch;
  if (!capacity_factor) return all;
  double wanted = std::ceil(*capacity_factor * static_cast<double>(all) / static_cast<double>(num_experts));
  return wanted < static_cast<double>(all) ? static_cast<Index>(wanted) : all;
}

void require_experts(const RoutingRule& rule, Index num_experts) {
  if (rule.top_k < 1 || rule.top_k > num_experts)
    throw Error(Code::usage, "--top-k: expected 1 to {}, the number of experts, given {}", num_experts,
                rule.top_k);
}

}  // namespace shard
