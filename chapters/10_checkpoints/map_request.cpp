#include "map_request.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "engine/basics/printable.hpp"
#include "engine/device/error.hpp"

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
      throw Error(Code::usage, fmt::format("--no-split: expected classes of the network's modules, given {}",
                                           name.empty() ? "''" : printable(name, 60)));
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
      throw Error(Code::usage, fmt::format("--device-map: expected {} or a file, given {}",
                                           fmt::join(ways, ", "), printable(request.how, 60)));
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

}  // namespace shard::checkpoints
