#pragma once

/// Control collectives that a device waits for at once, outside of the stream: gathers of texts, and the end of the
/// program. Calls in flight proceed meanwhile.

#include <string>
#include <vector>

#include "engine/device/runtime/groups/group.hpp"

namespace shard::runtime {

/// Returns all members' texts, in order, on member 0 or on all; nothing on other members.
std::vector<std::string> gather(Group& group, const Request& request);
/// Returns the largest exit code when all devices are at the end of the program. Call it when this device begins no more
/// calls.
Index max_at_end(Group& world, Index exit_code);
/// An all-to-all after max_at_end: returns the number that each member has for this one.
std::vector<Index> exchange_at_end(Group& world, const std::vector<Index>& numbers_for_each);

}  // namespace shard::runtime
