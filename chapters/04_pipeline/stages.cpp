#include "stages.hpp"

#include <fmt/format.h>

#include <numeric>

#include "engine/device/error.hpp"
#include "engine/options.hpp"
#include "engine/proof/costs.hpp"
#include "engine/schedules/cuts.hpp"

namespace shard::pipeline {

namespace {

[[noreturn]] void refuse_stages(const std::string& expected, const std::string& given) {
  throw Error(Code::usage, fmt::format("--stages: expected {}, given {}", expected, given));
}

std::vector<Range> cut_by_list(const Model& model, int stages, const std::string& how) {
  const auto layers = numbers_in(how, [](Index n) { return n >= 1; });
  if (!layers) refuse_stages("equal, flops, bytes or numbers of layers separated by commas", how);
  const Index sum = std::accumulate(layers->begin(), layers->end(), Index{0});
  if (static_cast<int>(layers->size()) != stages || sum != model.num_layers)
    refuse_stages(fmt::format("{} numbers that add up to {} layers", stages, model.num_layers), how);
  return parts_of_sizes(*layers);
}

}  // namespace

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
  if (how != "flops" && how != "bytes") return cut_by_list(model, stages, how);
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
