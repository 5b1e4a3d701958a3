#pragma once

/// Maps from modules to places, by the rules of Hugging Face's Accelerate 1.15.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tree.hpp"

namespace shard::dispatch {

/// Places of modules: devices 0, 1, ..., the host's memory `cpu`, and `disk`.
inline const std::string host_place = "cpu", disk_place = "disk";

/// Whether a place is a device: "0" or "12".
bool is_device(const std::string& place);
/// Whether a text is a device, `cpu` or `disk`.
bool is_place(const std::string& text);

/// The memory of a place.
struct PlaceMemory {
  std::string place;
  std::int64_t bytes = 0;
};
/// Devices by number, then cpu, then disk. Each place occurs at most once.
using Memory = std::vector<PlaceMemory>;

/// "0=24GiB,1=24GiB,cpu=64GiB", in any order. \throws Error usage
Memory parse_memory(const std::string& text);
/// Whether a place comes before another one in this order.
bool is_before(const std::string& place, const std::string& other);

/// A module or a tensor, and its place. Its children have the same place, unless they have their own line.
struct MapLine {
  std::string path;
  std::string place;
};
using DeviceMap = std::vector<MapLine>;

/// The settings for making a map.
struct MapSettings {
  Memory memory;
  std::vector<std::string> whole_classes;  ///< classes whose modules are not divided
  std::optional<std::string> dtype;        ///< for floating tensors, if it is smaller than their own
};

/// The memory of each place such that devices get about equal shares: `get_balanced_memory`. The last device
/// keeps all its memory. With `is_low_zero`, device 0 gets only what does not fit on the others.
/// \throws Error usage if the devices are not 0, 1, ... with `is_low_zero`
Memory balanced_memory(const Network& network, const MapSettings& settings, bool is_low_zero);

/// A map, and the memory that it keeps free.
struct FilledMap {
  DeviceMap map;
  /// Bytes by place. The first device and the host run layers that lie elsewhere, and keep room for the
  /// largest one.
  std::map<std::string, Index> kept_free;
};

/// Fills the places one after the other, in the order of the modules: `infer_auto_device_map`. A module that
/// does not fit is divided, unless its class stays whole; then the next place is filled. Tied tensors get one
/// place. The rest is on the disk. A module whose children have one place becomes one line.
FilledMap fill_places(const Network& network, const MapSettings& settings);

/// The place of a module or a tensor, from the line with the longest path that contains it; nothing without one.
std::optional<std::string> place_of(const DeviceMap& map, const std::string& path);

/// Reads a map, a JSON object from modules to places. \throws Error file for an invalid place, a module that
/// the network does not have, a parameter without a place, and tied parameters in different places
DeviceMap read_device_map(const std::string& path, const Network& network);
/// The map as a JSON text. Devices are numbers.
std::string json_of(const DeviceMap& map);

}  // namespace shard::dispatch
