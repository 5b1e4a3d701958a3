#pragma once

#include <memory>

#include "engine/device/device.hpp"
#include "engine/device/runtime/groups/group.hpp"

namespace shard::runtime {

/// The communicator of a group. Also makes the backend's part of the group. A collective of the group.
std::unique_ptr<Communicator> make_communicator(std::shared_ptr<Group> group);

}  // namespace shard::runtime
