#include "device_map.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "engine/basics/options.hpp"
#include "engine/basics/printable.hpp"
#include "engine/device/error.hpp"
#include "engine/files/json_file.hpp"
#include "engine/files/regular_file.hpp"

namespace shard::dispatch {

namespace {

[[noreturn]] void refuse(const std::string& expected, const std::string& given) {
  throw Error(Code::usage, "--memory: expected {}, given {}", expected, printable(given, 60));
}

std::int64_t parse_bytes(const std::string& text, const std::string& given) {
  const std::optional<std::int64_t> bytes = bytes_in(text);
  if (!bytes || std::toupper(text.back()) != 'B')
    refuse("a size with a unit, such as 24GiB, 500MB or 1000B", given);
  return *bytes;
}

}  // namespace

bool is_device(const std::string& place) {
  return !place.empty() && place.size() < 7 && place.find_first_not_of("0123456789") == std::string::npos &&
         (place == "0" || place[0] != '0');
}

bool is_place(const std::string& text) {
  return is_device(text) || text == host_place || text == disk_place;
}

bool is_before(const std::string& place, const std::string& other) {
  auto key = [](const std::string& p) {
    return is_device(p) ? std::tuple(0, std::stoi(p)) : std::tuple(p == host_place ? 1 : 2, 0);
  };
  return key(place) < key(other);
}

Memory parse_memory(const std::string& text) {
  Memory memory;
  std::istringstream parts(text + ',');
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t sign = part.find('=');
    if (sign == std::string::npos) refuse("places and sizes, such as 0=24GiB,1=24GiB,cpu=64GiB", text);
    const std::string place = part.substr(0, sign);
    if (!is_place(place)) refuse("a place, which is 0, 1, ..., cpu or disk", place);
    if (std::ranges::find(memory, place, &PlaceMemory::place) != memory.end())
      refuse("each place once", place + " twice");
    memory.push_back({place, parse_bytes(part.substr(sign + 1), part)});
  }
  std::ranges::sort(memory, is_before, &PlaceMemory::place);
  return memory;
}

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

namespace {

/// The largest first module of a class that stays whole, in bytes.
Index largest_whole(const Network& network, const MapSettings& settings, const ModuleSizes& sizes) {
  std::map<std::string, Index> first;  // by class
  for (const std::string& path : sizes.paths()) {
    const Module* module = path.empty() ? nullptr : find_module(network.root, path);
    if (module == nullptr) continue;
    if (std::ranges::find(settings.whole_classes, module->class_name) != settings.whole_classes.end())
      first.try_emplace(module->class_name, sizes[path]);
  }
  Index largest = 0;
  for (const auto& [name, bytes] : first) largest = std::max(largest, bytes);
  return largest;
}

/// Gives device 0 only what the other devices have no memory for.
void leave_the_rest_to_device_0(Memory& memory, Index number, Index total) {
  for (Index d = 1; d < number; ++d) {
    const auto device = std::ranges::find(memory, std::to_string(d), &PlaceMemory::place);
    if (device == memory.end() || memory.front().place != "0")
      throw Error(Code::usage,
                  "--device-map: expected devices 0, 1, ... with balanced_low_0, given none of number " +
                      std::string(device == memory.end() ? std::to_string(d) : "0"));
    total -= device->bytes;
  }
  memory.front().bytes = std::min(std::max<Index>(0, total), memory.front().bytes);
}

}  // namespace

Memory balanced_memory(const Network& network, const MapSettings& settings, bool is_low_zero) {
  Memory memory = settings.memory;
  std::vector<PlaceMemory*> devices;
  for (PlaceMemory& m : memory)
    if (is_device(m.place) && m.bytes > 0) devices.push_back(&m);
  if (devices.empty()) return memory;
  is_low_zero = is_low_zero && devices.size() > 1;
  const ModuleSizes sizes(network, settings.dtype);
  const auto number = static_cast<Index>(devices.size());
  const Index share =
      sizes.total() / (is_low_zero ? number - 1 : number) +
      static_cast<Index>(1.25 * static_cast<double>(std::max(largest_whole(network, settings, sizes),
                                                             sizes.mean_of_leaves())));
  for (PlaceMemory* device : devices)
    if (device != devices.back() && !(is_low_zero && device->place == "0"))
      device->bytes = std::min(share, device->bytes);
  if (is_low_zero) leave_the_rest_to_device_0(memory, number, sizes.total());
  return memory;
}

}  // namespace shard::dispatch
