#include "engine/workloads/model.hpp"

#include <fmt/format.h>

#include <set>

#include "engine/checkpoint.hpp"
#include "engine/files/safetensors_header.hpp"

namespace shard {

Index Model::weights() const {
  Index sum = 0;
  for (Index layer = 0; layer < num_layers; ++layer) sum += weights(layer);
  return sum;
}

std::string layer_name(Index layer) {
  return fmt::format("layer_{}/weights", layer);
}

std::string router_name() {
  return "router/weights";
}

std::string expert_layer_name(Index expert, Index layer) {
  return fmt::format("expert_{}/{}", expert, layer_name(layer));
}

namespace {

[[noreturn]] void refuse_parameter(const Checkpoint& from, const std::string& name,
                                   const std::string& expected, const std::string& given) {
  throw Error(Code::file, fmt::format("{}: {}: expected {}, given {}", from.source(), name, expected, given));
}

}  // namespace

Model model_of(const Checkpoint& checkpoint) {
  Model model;
  model.num_layers = static_cast<Index>(checkpoint.names().size());
  if (model.num_layers == 0) refuse_parameter(checkpoint, layer_name(0), "a matrix", "no parameter at all");
  std::set<std::string> wanted;
  for (Index layer = 0; layer < model.num_layers; ++layer) wanted.insert(layer_name(layer));
  for (const std::string& name : checkpoint.names())
    if (!wanted.contains(name))
      refuse_parameter(
          checkpoint, "parameters", "layer_0/weights, layer_1/weights, ... without a gap",
          fmt::format("{}, one of them named {}", model.num_layers, safetensors::printable(name, 60)));
  Shape first = checkpoint.shape(layer_name(0));
  if (first.size() != 2 || first[0] == 0 || first[1] == 0)
    refuse_parameter(checkpoint, layer_name(0), "a matrix of at least 1 by 1", to_string(first));
  model.model_dim = first[0];
  model.hidden_dim = first[1];
  for (Index layer = 0; layer < model.num_layers; ++layer) {
    Shape given = checkpoint.shape(layer_name(layer));
    if (given != model.shape(layer))
      refuse_parameter(checkpoint, layer_name(layer), to_string(model.shape(layer)), to_string(given));
  }
  return model;
}

namespace {

/// Whether parameters are those of `layers` layers for each expert, no more and no other.
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
                       fmt::format("{}, one of them named {}", checkpoint.names().size(),
                                   safetensors::printable(name, 60)));
}

}  // namespace

Model mixture_of(const Checkpoint& checkpoint) {
  Shape router = checkpoint.shape(router_name());
  if (router.size() != 2 || router[0] == 0 || router[1] == 0)
    refuse_parameter(checkpoint, router_name(), "a matrix of at least 1 by 1", to_string(router));
  Model model;
  model.model_dim = router[0];
  model.num_experts = router[1];
  model.num_layers = (static_cast<Index>(checkpoint.names().size()) - 1) / model.num_experts;
  require_expert_names(checkpoint, model.num_experts, model.num_layers);
  Shape first = checkpoint.shape(expert_layer_name(0, 0));
  if (first.size() != 2 || first[1] == 0)
    refuse_parameter(checkpoint, expert_layer_name(0, 0), "a matrix of at least 1 by 1", to_string(first));
  model.hidden_dim = first[1];
  for (Index e = 0; e < model.num_experts; ++e)
    for (Index l = 0; l < model.num_layers; ++l) {
      std::string name = expert_layer_name(e, l);
      Shape given = checkpoint.shape(name);
      if (given != model.shape(l))
        refuse_parameter(checkpoint, name, to_string(model.shape(l)), to_string(given));
    }
  return model;
}

}  // namespace shard
