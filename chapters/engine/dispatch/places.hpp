#pragma once

/// Places of modules: devices 0, 1, ..., the host's memory `cpu`, and `disk`; and the memory of each place.

#include <cstdint>
#include <string>
#include <vector>

namespace shard::dispatch {

inline const std::string host_place = "cpu", disk_place = "disk";

/// Whether a place is a device: "0" or "12".
bool is_device(const std::string& place);
/// Whether a text is a device, `cpu` or `disk`.
bool is_place(const std::string& text);

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

}  // namespace shard::dispatch
