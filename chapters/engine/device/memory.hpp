#pragma once

#include <optional>

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

}  // namespace shard
