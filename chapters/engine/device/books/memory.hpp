#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/device/split.hpp"

namespace shard {

class Communicator;

/// The memory that devices can use, in bytes. Doubles, since the size of a network may exceed any integer.
struct Room {
  double each;      ///< of one device: the limit of its address space
  double together;  ///< of all devices of this host: its free memory, or the limit of their control group
};

/// The memory that devices of this host can use now; nothing where the backend does not know it.
std::optional<Room> room_for_devices();

/// Whether tensors have elements. Without elements, operations only book their costs (emu/meta/).
bool tensors_have_elements();

/// The list, on the heap. Devices whose tensors have no elements are in one process and read the same batch, so equal
/// lists are one there.
template <class T>
std::shared_ptr<const std::vector<T>> one_of_equal(std::vector<T> list) {
  auto made = std::make_shared<const std::vector<T>>(std::move(list));
  if (tensors_have_elements()) return made;
  static std::vector<std::weak_ptr<const std::vector<T>>> all;
  std::erase_if(all, [](const auto& some) { return some.expired(); });
  for (const auto& some : all)
    if (const auto same = some.lock(); *same == *made) return same;
  all.push_back(made);
  return made;
}

/// Calls `body(k)` for k from 0 to n − 1. All calls must have the same costs, as equal parts of attention.
/// If tensors have no elements, the loop ends early: after the first call that leaves the bytes held unchanged and
/// sends nothing. Its operations are then booked for the remaining calls, too.
void for_each_alike(Index n, const std::function<void(Index)>& body);

/// Devices that do the same: `count` of them, whose ids differ by multiples of `stride`, as along an axis of a mesh.
struct AlikeDevices {
  int count = 1, stride = 1;
};
/// Runs a job of this number of devices, which this device waits for, and returns what the body returns on each. Of alike
/// devices the first and the last stand for those between; if they are found not to be alike, all run. Nothing where
/// tensors have elements: such a job has its devices from the beginning. \throws what a body throws
std::optional<std::vector<std::string>> results_of_job(
    int devices, AlikeDevices alike, const std::function<std::string(Communicator& world)>& body);

}  // namespace shard
