#pragma once

#include <functional>
#include <optional>

#include "engine/device/split.hpp"

namespace shard {

/// Bytes that devices can hold: of real numbers, as they are compared with sizes of any network.
struct Room {
  double each;      ///< one device, by the limit of its address space
  double together;  ///< all devices of this host, by what its memory has left and what their group may take
};

/// What devices of this host can hold now; nothing where the backend does not know.
std::optional<Room> room_for_devices();

/// Whether tensors have elements. Without them, operations only book what they would do (emu/meta/).
bool tensors_have_elements();

/// Calls `body(k)` for k from 0 to n − 1. The calls differ in the values of elements alone, as heads of
/// attention do. So where tensors have none, the first call that leaves the memory as it found it, and makes
/// no call to other devices, is booked for all that follow.
void for_each_alike(Index n, const std::function<void(Index)>& body);

}  // namespace shard
