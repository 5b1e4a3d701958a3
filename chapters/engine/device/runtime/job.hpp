#pragma once

#include <functional>

#include "engine/device/device.hpp"

namespace shard::runtime {

/// Runs the body as the device that runs this code, in a job that has begun, and meets the others at its end.
/// Returns the largest exit code.
int run_in_world(const std::function<int(Communicator& world)>& body);
/// The same; any exception ends the whole job.
int run_as_device(const std::function<int(Communicator& world)>& body);

}  // namespace shard::runtime
