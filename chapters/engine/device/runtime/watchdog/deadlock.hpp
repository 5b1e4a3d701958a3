#pragma once

/// What waiting devices say of themselves, and what follows from it: which of them can never go on, and why.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/device/split.hpp"

namespace shard::runtime {

/// What a device waits for. A slot of a group counts what a device has posted to one of its channels (sends
/// to member 1, say).
struct Blocked {
  /// Met when device `peer` of the job has posted `entries` to that slot.
  struct Need {
    Index peer;
    Index group;
    Index slot;
    Index entries;
    bool operator==(const Need&) const = default;
  };
  /// The needs of one operation. It goes on when all of them are met.
  using Needs = std::vector<Need>;

  std::string call;   ///< "all_reduce in group {0, 1}"
  std::string place;  ///< "call 3 at FILE:LINE"
  /// The operations of which one has to go on before the device does.
  std::vector<Needs> any_of = {Needs{}};
  std::vector<Needs> in_flight;  ///< of each operation that may go on while the device waits
  bool is_polling = false;       ///< it asks whether calls are done, so it may do something else at any time
  bool is_at_end = false;        ///< it begins no more calls

  /// Of a collective: the group, its members, and the number of the call among those of the group.
  Index group = -1;
  std::vector<int> members;
  Index call_of_group = 0;

  bool operator==(const Blocked&) const = default;
};

/// The state of a device that waits.
struct DeviceState {
  Blocked blocked;
  /// By group and slot; a slot that is not here is 0. Of a group that is not here nothing is known: it was
  /// removed long ago.
  std::map<Index, std::map<Index, Index>> posted;
  Index calls = 0;  ///< that the device has made
  bool operator==(const DeviceState&) const = default;

  std::string packed() const;
  static DeviceState from(const std::string& bytes);
};

/// By device of the job. Nothing is known of a device that runs: it may do anything.
using DeviceStates = std::vector<std::optional<DeviceState>>;

/// The devices that can never go on, whatever the others do. If the states are those of one moment, it is a
/// proof (deadlock_search.hpp).
std::vector<int> stuck_devices(const DeviceStates& states);

/// Who waits in which call for whom, and what to look for.
std::string explain_deadlock(const DeviceStates& states, const std::vector<int>& stuck);

/// Numbers and a text as bytes, and back.
std::string pack(const std::vector<Index>& numbers, const std::string& text);
std::pair<std::vector<Index>, std::string> unpack(const std::string& bytes);

}  // namespace shard::runtime
