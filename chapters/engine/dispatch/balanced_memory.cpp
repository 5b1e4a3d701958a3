#include <algorithm>
#include <map>

#include "engine/device/error.hpp"
#include "engine/dispatch/device_map.hpp"

namespace shard::dispatch {

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
