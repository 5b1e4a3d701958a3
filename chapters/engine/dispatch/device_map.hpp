#pragma once

/// Maps from modules to places, as Hugging Face's Accelerate 1.15 makes them.

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/dispatch/module_sizes.hpp"
#include "engine/dispatch/places.hpp"

namespace shard::dispatch {

/// A module or a tensor, and its place. What is in a module goes with it, unless it has a line of its own.
struct MapLine {
  std::string path;
  std::string place;
};
using DeviceMap = std::vector<MapLine>;

/// How a map is made.
struct MapSettings {
  Memory memory;
  std::vector<std::string> whole_classes;  ///< whose modules are not divided
  std::optional<std::string> dtype;        ///< of floating tensors, where it is smaller than their own
};

/// Memory for each place such that its devices get about as much each: `get_balanced_memory`. The last device
/// keeps all that it has. With `is_low_zero`, device 0 gets only what does not fit on the others.
/// \throws Error usage where `is_low_zero` and the devices are not 0, 1, ...
Memory balanced_memory(const Network& network, const MapSettings& settings, bool is_low_zero);

/// A map, and what was kept free.
struct FilledMap {
  DeviceMap map;
  /// On the first device and on the host, for the largest layer that has its place elsewhere and comes to run:
  /// bytes by place.
  std::map<std::string, Index> kept_free;
};

/// Fills the places one after the other, in the order of the modules: `infer_auto_device_map`. What does not
/// fit is divided, unless its class is to stay whole; then the next place is filled. Tied tensors come to one
/// place. What fits nowhere is on the disk. Modules that are together are one line.
FilledMap fill_places(const Network& network, const MapSettings& settings);

/// The place of a module or a tensor: that of the longest line which it is within; none where no line says it.
std::optional<std::string> place_of(const DeviceMap& map, const std::string& path);

/// Reads a map: a JSON object of modules and places. \throws Error file for places that are none, modules that
/// the network does not have, a parameter that has no place, and tied parameters in different places
DeviceMap read_device_map(const std::string& path, const Network& network);
/// The same as text. Devices are numbers.
std::string json_of(const DeviceMap& map);

}  // namespace shard::dispatch
