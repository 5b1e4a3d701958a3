#pragma once

#include <functional>

#include "engine/device/device.hpp"

namespace shard::runtime {

/// Runs the body as the current device of a job that has begun, and waits for the other devices to end. Returns
/// the largest exit code.
int run_in_world(const std::function<int(Communicator& world)>& body);
/// The same. Any exception ends the whole job.
int run_as_device(const std::function<int(Communicator& world)>& body);

}  // namespace shard::runtime
