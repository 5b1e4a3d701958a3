#include "map.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "10_checkpoints/dispatch/families.hpp"
#include "commands.hpp"
#include "engine/basics/printable.hpp"
#include "engine/device/error.hpp"
#include "engine/files/regular_file.hpp"

namespace shard::checkpoints {

using namespace dispatch;

namespace {

/// The classes of the option. \throws Error usage for one that no module has
std::vector<std::string> named_classes(const std::string& text, const Network& network) {
  std::vector<std::string> classes;
  if (text == "none") return classes;
  std::istringstream parts(text + ',');
  for (std::string name; std::getline(parts, name, ',');) {
    const bool is_there = std::ranges::any_of(all_modules(network.root), [&](const std::string& path) {
      return find_module(network.root, path)->class_name == name;
    });
    if (!is_there)
      throw Error(Code::usage, "--no-split: expected classes of the network's modules, given {}",
                  name.empty() ? "''" : printable(name, 60));
    classes.push_back(name);
  }
  return classes;
}

}  // namespace

std::vector<TextOption> MapRequest::options() {
  return {{"--params",
           "A folder with config.json, and with the files of parameters if it is to run",
           "DIR",
           {},
           &params},
          {"--device-map",
           "auto, balanced, balanced_low_0, sequential, or a JSON file of modules and places",
           "HOW=auto",
           {},
           &how},
          {"--memory", "What fits: 0=24GiB,1=24GiB,cpu=64GiB", "PLACES", {}, &memory},
          {"--no-split", "Classes that stay whole, with commas, or none", "CLASSES=derived", {}, &no_split},
          {"--dtype",
           "f64, f32, f16 or bf16, for sizes, where it is smaller than a tensor's own type",
           "NAME",
           {"f64", "f32", "f16", "bf16"},
           &dtype}};
}

std::optional<std::string> MapRequest::converted_to() const {
  std::string upper = dtype;
  std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return std::toupper(c); });
  return upper.empty() ? std::nullopt : std::optional(upper);
}

MadeMap make_map(const MapRequest& request, const Network& network) {
  static const std::vector<std::string> ways = {"auto", "balanced", "balanced_low_0", "sequential"};
  const bool is_file = std::ranges::find(ways, request.how) == ways.end();
  if (!is_file && request.memory.empty())
    throw Error(Code::usage, "--memory: expected places and sizes, such as 0=24GiB,cpu=64GiB, given none");
  MadeMap made;
  if (!request.memory.empty()) made.memory = made.shares = parse_memory(request.memory);
  if (is_file) {
    std::error_code ignored;
    if (!std::filesystem::exists(request.how, ignored))
      throw Error(Code::usage, "--device-map: expected {} or a file, given {}", fmt::join(ways, ", "),
                  printable(request.how, 60));
    made.filled.map = read_device_map(request.how, network);
    return made;
  }
  MapSettings settings{made.memory, {}, request.converted_to()};
  if (request.no_split.empty())
    made.derived = kept_whole(network);
  else
    settings.whole_classes = named_classes(request.no_split, network);
  for (const KeptWhole& kept : made.derived) settings.whole_classes.push_back(kept.class_name);
  if (request.how != "sequential")
    settings.memory = made.shares = balanced_memory(network, settings, request.how == "balanced_low_0");
  made.filled = fill_places(network, settings);
  return made;
}

namespace {

/// Bytes of each place: each tensor counts in the place of the longest line that it is within.
std::map<std::string, Index> bytes_held(const DeviceMap& map, const Network& network,
                                        const ModuleSizes& sizes) {
  std::map<std::string, Index> held;
  for (const auto& [path, tensor] : all_tensors(network.root))
    if (const auto place = place_of(map, path)) held[*place] += sizes[path];
  return held;
}

/// "model.layers.3" as "model.layers." and 3; no number where the last part is none.
std::pair<std::string, std::optional<int>> numbered(const std::string& path) {
  const std::size_t begin = path.rfind('.') + 1;
  if (!is_device(path.substr(begin))) return {path, std::nullopt};
  return {path.substr(0, begin), std::stoi(path.substr(begin))};
}

void print_modules(const DeviceMap& map, const std::string& place) {
  for (std::size_t i = 0; i < map.size(); ++i) {
    if (map[i].place != place) continue;
    const auto [list, first] = numbered(map[i].path);
    std::optional<int> last = first;
    while (last && i + 1 < map.size() && map[i + 1].place == place &&
           numbered(map[i + 1].path) == std::pair(list, std::optional(*last + 1)))
      ++i, ++*last;
    fmt::print("    {}\n", last != first         ? fmt::format("{}{} to {}", list, *first, *last)
                           : map[i].path.empty() ? "all"
                                                 : map[i].path);
  }
}

std::string bar(Index held, Index kept_free, Index of) {
  constexpr Index width = 40;
  if (of <= 0) return std::string(held > 0 ? width : 0, '#');
  auto cells = [&](Index bytes) {
    return static_cast<Index>(static_cast<double>(bytes) / static_cast<double>(of) * width + 0.5);
  };
  const Index full = std::min(cells(held), width), end = std::clamp(cells(held + kept_free), full, width);
  return fmt::format("{:#<{}}{:-<{}}{:.<{}}", "", full, "", end - full, "", width - end);
}

std::optional<Index> bytes_at(const Memory& memory, const std::string& place) {
  const auto found = std::ranges::find(memory, place, &PlaceMemory::place);
  return found == memory.end() || place == disk_place ? std::nullopt : std::optional(found->bytes);
}

std::string shown_bytes(std::optional<Index> bytes) {
  return bytes ? with_commas(*bytes) : "-";
}

void print_picture(const MadeMap& shown, const Network& network, const ModuleSizes& sizes) {
  std::map<std::string, Index> held = bytes_held(shown.filled.map, network, sizes);
  std::vector<std::string> places;
  for (const PlaceMemory& m : shown.memory) places.push_back(m.place);
  for (const auto& [place, unused] : held)
    if (std::ranges::find(places, place) == places.end()) places.push_back(place);
  std::ranges::sort(places, is_before);
  fmt::print("{:<5} {:>17} {:>17} {:>17} {:>17}\n", "place", "bytes", "kept free", "share", "memory");
  for (const std::string& place : places) {
    const auto kept = shown.filled.kept_free.find(place);
    const std::optional<Index> free =
        kept == shown.filled.kept_free.end() ? std::nullopt : std::optional(kept->second);
    const std::optional<Index> memory = bytes_at(shown.memory, place);
    fmt::print("{:<5} {:>17} {:>17} {:>17} {:>17}\n    [{}]\n", place, with_commas(held[place]),
               shown_bytes(free), shown_bytes(bytes_at(shown.shares, place)), shown_bytes(memory),
               bar(held[place], free.value_or(0), memory.value_or(sizes.total())));
    print_modules(shown.filled.map, place);
  }
}

}  // namespace

int map(const Communicator& group, const std::vector<std::string>& words) {
  MapRequest request;
  std::string json;
  std::vector<TextOption> options = request.options();
  options.push_back({"--json", "Where to write the map", "FILE", {}, &json});
  if (!parse_options(group, "10_checkpoints map", words, "Which device holds which module of a network",
                     options, "What fits nowhere else has its place on the disk."))
    return 0;
  if (request.params.empty()) throw Error(Code::usage, "map: expected --params DIR, given none");
  const Network network = read_network(request.params);
  const MadeMap made = make_map(request, network);
  if (!json.empty()) replace_file(json, json_of(made.filled.map));
  const ModuleSizes sizes(network, request.converted_to());
  fmt::print("{}: {} bytes\n", network.summary, with_commas(sizes.total()));
  if (!made.derived.empty()) fmt::print("whole, since a cut would send more:\n");
  for (const KeptWhole& kept : made.derived) fmt::print("  {}\n", kept.why());
  print_picture(made, network, sizes);
  return 0;
}

}  // namespace shard::checkpoints
