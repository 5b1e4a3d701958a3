#pragma once

/// The states of waiting devices, and what follows from them: which devices can never continue, and why.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/device/split.hpp"

namespace shard::runtime {

/// What a device waits for, in the AND-OR model (Knapp 1987): one of its calls must proceed, and a call proceeds
/// when all its dependencies are met. A slot counts posts of one kind in a group (sends to member 1, say).
struct Blocked {
  /// Met when device `peer` of the job has counted `posts` posts in that slot.
  struct Dependency {
    Index peer;
    Index group;
    Index slot;
    Index posts;
    bool operator==(const Dependency&) const = default;
  };
  /// What one call waits for: all of these.
  using Dependencies = std::vector<Dependency>;

  std::string call;   ///< "all_reduce in group {0, 1}"
  std::string place;  ///< "call 3 at FILE:LINE"
  /// The dependencies of each call that this device waits for. One of these calls must proceed.
  std::vector<Dependencies> any_of = {Dependencies{}};
  std::vector<Dependencies> in_flight;  ///< of each call that may proceed while the device waits
  bool is_polling = false;              ///< it tests calls, and may do something else at any time
  bool is_at_end = false;               ///< it begins no more calls

  /// If it waits in a collective: the group, its members, and the number of the call in the group.
  Index group = -1;
  std::vector<int> members;
  Index call_of_group = 0;

  bool operator==(const Blocked&) const = default;
};

/// The state of a device that waits.
struct DeviceState {
  Blocked blocked;
  /// The number of posts by group and slot; a missing slot has 0. Of a missing group, which was removed long
  /// ago, all posts are taken as made.
  std::map<Index, std::map<Index, Index>> posted;
  Index calls = 0;  ///< the number of calls that the device has made
  bool operator==(const DeviceState&) const = default;

  std::string packed() const;
  static DeviceState from(const std::string& bytes);
};

/// By device of the job. A device that runs has none, and may do anything.
using DeviceStates = std::vector<std::optional<DeviceState>>;

/// The devices that can never continue, whatever the others do. This is proved if all states are of one moment
/// (deadlock_search.hpp).
std::vector<int> stuck_devices(const DeviceStates& states);

/// An error message: which device waits in which call for whom, and the likely mistake.
std::string explain_deadlock(const DeviceStates& states, const std::vector<int>& stuck);

/// \throws Error deadlock. Also discards this device's counts of messages.
[[noreturn]] void throw_deadlock(const std::string& line);

/// "device 1", "devices 0 to 3, 5".
std::string devices_text(std::vector<int> devices);

}  // namespace shard::runtime
