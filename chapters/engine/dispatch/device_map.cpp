#include "engine/dispatch/device_map.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/basics/printable.hpp"
#include "engine/files/json_file.hpp"
#include "engine/files/regular_file.hpp"

namespace shard::dispatch {

namespace {

/// Parses the place of a module. \throws Error file
std::string place_in(const nlohmann::json& value, const std::string& path, const std::string& module) {
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  const bool is_number = value.is_number_integer();
  if (value.is_string() == is_device(text) || !is_place(text) || (!is_number && !value.is_string()))
    bad_file(path, "module \"" + printable(module) + '"', "a place, which is 0, 1, ..., \"cpu\" or \"disk\"",
             printable(value.dump(), 60));
  return text;
}

void require_whole_map(const DeviceMap& map, const Network& network, const std::string& path) {
  const auto tensors = all_tensors(network.root);
  for (const MapLine& line : map) {
    const bool is_tensor = std::ranges::any_of(tensors, [&](const auto& t) { return t.first == line.path; });
    if (!is_tensor && find_module(network.root, line.path) == nullptr)
      bad_file(path, "wrong module", "one that the network has", '"' + printable(line.path) + '"');
  }
  for (const auto& [path_of_tensor, tensor] : tensors)
    if (!tensor->is_buffer && !place_of(map, path_of_tensor))
      bad_file(path, "no place", "one for each parameter", "none for " + path_of_tensor);
  for (const std::vector<std::string>& group : network.tied)
    for (const std::string& tensor : group)
      if (place_of(map, tensor) != place_of(map, group[0]))
        bad_file(path, "tied parameters", group[0] + " and " + tensor + " in one place",
                 *place_of(map, group[0]) + " and " + *place_of(map, tensor));
}

}  // namespace

std::optional<std::string> place_of(const DeviceMap& map, const std::string& path) {
  const MapLine* longest = nullptr;
  for (const MapLine& line : map)
    if (is_within(path, line.path) && (longest == nullptr || line.path.size() > longest->path.size()))
      longest = &line;
  return longest == nullptr ? std::nullopt : std::optional(longest->place);
}

DeviceMap read_device_map(const std::string& path, const Network& network) {
  const nlohmann::json json = read_json_object(path);
  DeviceMap map;
  for (const auto& [module, place] : json.items()) map.push_back({module, place_in(place, path, module)});
  require_whole_map(map, network, path);
  return map;
}

std::string json_of(const DeviceMap& map) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [path, place] : map)
    if (is_device(place))
      json[path] = std::stoi(place);
    else
      json[path] = place;
  return json.dump(2) + '\n';
}

}  // namespace shard::dispatch
