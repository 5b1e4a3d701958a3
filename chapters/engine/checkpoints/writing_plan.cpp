#include "engine/checkpoints/writing_plan.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/checkpoints/manifest.hpp"

namespace shard {

namespace {

using nlohmann::json;

/// The names and parts that a device holds, as a text for the other devices.
std::string announced(const std::vector<HeldPart>& held) {
  json all = json::array();
  for (const HeldPart& part : held) {
    json ranges = json::array();
    for (const auto& [begin, end] : part.ranges) ranges.push_back({begin, end});
    all.push_back({part.name, part.whole, ranges});
  }
  return all.dump();
}

/// Parts by name, and the devices that hold each.
using Holders = std::map<std::string, std::map<std::vector<Index>, std::vector<int>>>;

Ranges ranges_from(const std::vector<Index>& numbers) {
  Ranges ranges;
  for (std::size_t i = 0; i < numbers.size(); i += 2) ranges.push_back({numbers[i], numbers[i + 1]});
  return ranges;
}

}  // namespace

std::map<std::string, PlannedTensor> plan_writing(Communicator& group, const std::vector<HeldPart>& held) {
  std::map<std::string, PlannedTensor> plan;
  Holders holders;
  const std::vector<std::string> all = group.gather_for_all("parts to save", announced(held));
  for (std::size_t device = 0; device < all.size(); ++device)
    for (const json& part : json::parse(all[device])) {
      const std::string name = part[0];
      plan[name].shape = part[1].get<Shape>();
      std::vector<Index> numbers;
      for (const json& range : part[2]) numbers.insert(numbers.end(), range.begin(), range.end());
      if (num_elements(shape_of(ranges_from(numbers))) > 0)
        holders[name][numbers].push_back(static_cast<int>(device));
    }
  std::vector<Index> load(all.size());  // elements to write, by device
  for (auto& [name, tensor] : plan) {
    std::vector<Ranges> tiles;
    for (const auto& [numbers, devices] : holders[name]) {
      const int writer = *std::ranges::min_element(
          devices, {}, [&](int device) { return load[static_cast<std::size_t>(device)]; });
      tiles.push_back(ranges_from(numbers));
      tensor.parts.push_back({tiles.back(), writer});
      load[static_cast<std::size_t>(writer)] += num_elements(shape_of(tiles.back()));
    }
    if (const std::string why = why_no_tiling(tensor.shape, tiles); !why.empty())
      refuse(Code::internal, "save " + name, "parts that tile " + to_string(tensor.shape), why);
  }
  return plan;
}

}  // namespace shard
