#include "stages.hpp"

#include <fmt/format.h>

#include "engine/device/error.hpp"
#include "engine/proof/costs.hpp"
#include "engine/schedules/cuts.hpp"

namespace shard::pipeline {

std::vector<Range> cut_into_stages(const Model& model, int stages, const std::string& how) {
  if (model.num_layers < stages)
    throw Error(Code::usage,
                fmt::format("pipeline: expected at least as many layers as stages, {}, given {} layers",
                            stages, model.num_layers));
  std::vector<Range> cut;
  if (how == "equal") {
    for (int s = 0; s < stages; ++s) cut.push_back(part(model.num_layers, stages, s));
    return cut;
  }
  if (how != "flops" && how != "bytes")
    return cut_by_list(how, model.num_layers, stages, "layers", "--stages", "equal, flops, bytes");
  std::vector<Index> costs;
  for (Index l = 0; l < model.num_layers; ++l) {
    const Index products = l > 0 ? 3 : 2;  // a W, aᵀ d, and for all but the first d Wᵀ
    constexpr Index copies = 1 + 1 + 2;    // parameter, gradient, Adam's two moments
    costs.push_back(how == "flops" ? products * product_flops(1, model.width(l), model.width(l + 1))
                                   : copies * model.weights(l) * bytes_per_element);
  }
  return cut_by_cost(costs, stages);
}

}  // namespace shard::pipeline
