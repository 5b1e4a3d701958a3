#pragma once

/// Where modules can be: devices 0, 1, ..., the host's memory `cpu`, and `disk`; and how much fits there.

#include <cstdint>
#include <string>
#include <vector>

namespace shard::dispatch {

inline const std::string host_place = "cpu", disk_place = "disk";

/// "0" and "12" are devices.
bool is_device(const std::string& place);
/// A device, `cpu` or `disk`.
bool is_place(const std::string& text);

struct PlaceMemory {
  std::string place;
  std::int64_t bytes = 0;
};
/// Devices by number, then cpu, then disk. Each place is there once at most.
using Memory = std::vector<PlaceMemory>;

/// "0=24GiB,1=24GiB,cpu=64GiB", in any order. \throws Error usage
Memory parse_memory(const std::string& text);
/// Whether a place comes first in this order.
bool is_before(const std::string& place, const std::string& other);

}  // namespace shard::dispatch
