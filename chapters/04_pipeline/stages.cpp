#include "stages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>

#include "engine/device/error.hpp"
#include "engine/proof/costs.hpp"

namespace shard::pipeline {

namespace {

[[noreturn]] void refuse_stages(const std::string& expected, const std::string& given) {
  throw Error(Code::usage, fmt::format("--stages: expected {}, given {}", expected, given));
}

/// "3,2,3" as numbers.
std::vector<Index> numbers_in(const std::string& list) {
  std::vector<Index> numbers;
  const char* at = list.data();
  const char* end = at + list.size();
  while (true) {
    Index number = 0;
    auto [stop, error] = std::from_chars(at, end, number);
    if (error != std::errc() || number < 1 || (stop != end && *stop != ','))
      refuse_stages("equal, flops, bytes or numbers of layers separated by commas", list);
    numbers.push_back(number);
    if (stop == end) return numbers;
    at = stop + 1;
  }
}

std::vector<Range> cut_by_list(const Model& model, int stages, const std::string& how) {
  std::vector<Index> layers = numbers_in(how);
  const Index sum = std::accumulate(layers.begin(), layers.end(), Index{0});
  if (static_cast<int>(layers.size()) != stages || sum != model.num_layers)
    refuse_stages(fmt::format("{} numbers that add up to {} layers", stages, model.num_layers), how);
  std::vector<Range> cut;
  for (Index n : layers)
    cut.push_back({cut.empty() ? 0 : cut.back().end, (cut.empty() ? 0 : cut.back().end) + n});
  return cut;
}

/// Parts of at most `most` each, as many as it takes, the first ones as large as they can be while one index
/// is left for each part behind them; empty if `parts` do not suffice.
std::vector<Range> cut_within(const std::vector<Index>& costs, int parts, Index most) {
  const auto size = static_cast<Index>(costs.size());
  std::vector<Range> cut;
  Index begin = 0;
  for (int p = 0; p < parts; ++p) {
    Index end = begin;
    for (Index sum = 0; end < size - (parts - 1 - p); ++end) {
      sum += costs[static_cast<std::size_t>(end)];
      if (sum > most) break;
    }
    if (end == begin) return {};
    cut.push_back({begin, end});
    begin = end;
  }
  return begin == size ? cut : std::vector<Range>();
}

}  // namespace

std::vector<Range> cut_by_cost(const std::vector<Index>& costs, int parts) {
  Index low = 0;
  Index high = std::accumulate(costs.begin(), costs.end(), Index{0});
  while (low < high) {  // the smallest limit that suffices
    const Index middle = low + (high - low) / 2;
    if (cut_within(costs, parts, middle).empty())
      low = middle + 1;
    else
      high = middle;
  }
  return cut_within(costs, parts, low);
}

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
