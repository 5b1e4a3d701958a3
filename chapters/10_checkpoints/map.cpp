#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "commands.hpp"
#include "engine/device/error.hpp"
#include "engine/dispatch/data_flow.hpp"
#include "engine/dispatch/device_map.hpp"
#include "engine/dispatch/families.hpp"
#include "engine/files/regular_file.hpp"
#include "engine/printable.hpp"
#include "engine/program/command_line.hpp"

namespace shard::checkpoints {

using namespace dispatch;

namespace {

struct Asked {
  std::string params, how = "auto", memory, no_split, dtype, json;
};

bool read(const Communicator& group, const std::vector<std::string>& words, Asked& asked) {
  return parse_options(
      group, "10_checkpoints map", words, "Which device holds which module of a network",
      {{"--params", "A folder with config.json, or such a file; no weight is read", "DIR", {}, &asked.params},
       {"--device-map",
        "auto, balanced, balanced_low_0, sequential, or a JSON file of modules and places",
        "HOW=auto",
        {},
        &asked.how},
       {"--memory", "What fits: 0=24GiB,1=24GiB,cpu=64GiB", "PLACES", {}, &asked.memory},
       {"--no-split",
        "Classes that stay whole, with commas, or none",
        "CLASSES=derived",
        {},
        &asked.no_split},
       {"--dtype",
        "f64, f32, f16 or bf16, where it is smaller than a tensor's own type",
        "NAME",
        {"f64", "f32", "f16", "bf16"},
        &asked.dtype},
       {"--json", "Where to write the map", "FILE", {}, &asked.json}},
      "What fits nowhere else has its place on the disk.");
}

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
      throw Error(Code::usage, fmt::format("--no-split: expected classes of the network's modules, given {}",
                                           name.empty() ? "''" : printable(name, 60)));
    classes.push_back(name);
  }
  return classes;
}

/// A map with what the picture shows of it.
struct Shown {
  FilledMap filled;
  std::vector<KeptWhole> derived;  ///< the classes that stay whole, where none were named
  Memory memory;                   ///< as given
  Memory shares;                   ///< as filled
};

Shown make(const Asked& asked, const Network& network, const std::optional<std::string>& dtype) {
  static const std::vector<std::string> ways = {"auto", "balanced", "balanced_low_0", "sequential"};
  const bool is_file = std::ranges::find(ways, asked.how) == ways.end();
  if (!is_file && asked.memory.empty())
    throw Error(Code::usage, "map: expected --memory, such as 0=24GiB,cpu=64GiB, given none");
  Shown shown;
  if (!asked.memory.empty()) shown.memory = shown.shares = parse_memory(asked.memory);
  if (is_file) {
    std::error_code ignored;
    if (!std::filesystem::exists(asked.how, ignored))
      throw Error(Code::usage, fmt::format("--device-map: expected {} or a file, given {}",
                                           fmt::join(ways, ", "), printable(asked.how, 60)));
    shown.filled.map = read_device_map(asked.how, network);
    return shown;
  }
  MapSettings settings{shown.memory, {}, dtype};
  if (asked.no_split.empty())
    shown.derived = kept_whole(network);
  else
    settings.whole_classes = named_classes(asked.no_split, network);
  for (const KeptWhole& kept : shown.derived) settings.whole_classes.push_back(kept.class_name);
  if (asked.how != "sequential")
    settings.memory = shown.shares = balanced_memory(network, settings, asked.how == "balanced_low_0");
  shown.filled = fill_places(network, settings);
  return shown;
}

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

void print_picture(const Shown& shown, const Network& network, const ModuleSizes& sizes) {
  std::map<std::string, Index> held = bytes_held(shown.filled.map, network, sizes);
  std::vector<std::string> places;
  for (const PlaceMemory& m : shown.memory) places.push_back(m.place);
  for (const auto& [place, unused] : held)
    if (std::ranges::find(places, place) == places.end()) places.push_back(place);
  std::ranges::sort(places, is_before);
  fmt::print("{:<5} {:>18} {:>18} {:>18} {:>18}\n", "place", "bytes", "kept free", "share", "memory");
  for (const std::string& place : places) {
    const auto kept = shown.filled.kept_free.find(place);
    const std::optional<Index> free =
        kept == shown.filled.kept_free.end() ? std::nullopt : std::optional(kept->second);
    const std::optional<Index> memory = bytes_at(shown.memory, place);
    fmt::print("{:<5} {:>18} {:>18} {:>18} {:>18}  [{}]\n", place, with_commas(held[place]),
               shown_bytes(free), shown_bytes(bytes_at(shown.shares, place)), shown_bytes(memory),
               bar(held[place], free.value_or(0), memory.value_or(sizes.total())));
    print_modules(shown.filled.map, place);
  }
}

}  // namespace

int map(const Communicator& group, const std::vector<std::string>& words) {
  Asked asked;
  if (!read(group, words, asked)) return 0;
  if (asked.params.empty()) throw Error(Code::usage, "map: expected --params DIR, given none");
  const Network network = read_network(asked.params);
  std::ranges::transform(asked.dtype, asked.dtype.begin(), [](unsigned char c) { return std::toupper(c); });
  const auto dtype = asked.dtype.empty() ? std::nullopt : std::optional(asked.dtype);
  const ModuleSizes sizes(network, dtype);
  const Shown shown = make(asked, network, dtype);
  if (!asked.json.empty()) replace_file(asked.json, json_of(shown.filled.map));
  fmt::print("{}: {} bytes\n", network.summary, with_commas(sizes.total()));
  if (!shown.derived.empty()) fmt::print("whole, since a cut would send more:\n");
  for (const KeptWhole& kept : shown.derived) fmt::print("  {}\n", kept.why());
  print_picture(shown, network, sizes);
  return 0;
}

}  // namespace shard::checkpoints
