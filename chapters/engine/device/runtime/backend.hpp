#pragma once

/// What each backend brings beside the bodies of calls (collectives/collectives.hpp): functions of its device.

#include <memory>

#include "engine/device/runtime/call.hpp"

namespace shard::runtime {

/// The communicator of a group. Also makes the backend's part of the group. A collective of the group.
std::unique_ptr<Communicator> make_communicator(std::shared_ptr<Group> group);

/// Called once, before the first group is made.
void set_up_device();
/// Makes a new group's own way to send data, or null for the bodies of collectives.hpp. A collective of the group.
std::unique_ptr<DataPlane> make_data_plane(const Group& group);
/// Called when a call starts. Its work must wait for all computation that was launched before.
std::unique_ptr<Awaited> enter_device(const Call& call);
/// Returns when the device has done all launched work.
void finish_device();

}  // namespace shard::runtime
