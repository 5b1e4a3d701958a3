#pragma once

#include <functional>
#include <optional>

#include "engine/device/split.hpp"

namespace shard {

/// The memory that devices can use, in bytes. Doubles, since the size of a network may exceed any integer.
struct Room {
  double each;      ///< of one device: the limit of its address space
  double together;  ///< of all devices of this host: its free memory, or the limit of their control group
};

/// The memory that devices of this host can use now; nothing where the backend does not know it.
std::optional<Room> room_for_devices();

/// Whether tensors have elements. Without elements, operations only book their costs (emu/meta/).
bool tensors_have_elements();

/// Calls `body(k)` for k from 0 to n − 1. All calls must have the same costs, as equal parts of attention.
/// If tensors have no elements, the loop ends early: after the first call that leaves the bytes held unchanged and
/// sends nothing. Its operations are then booked for the remaining calls, too.
void for_each_alike(Index n, const std::function<void(Index)>& body);

}  // namespace shard
