#pragma once

#include <functional>

#include "engine/device/device.hpp"

namespace shard::runtime {

/// Runs the body as the device that runs this code, in a job that has begun, and returns the job's exit code. Any
/// exception ends the whole job.
int run_as_device(const std::function<int(Communicator& world)>& body);

}  // namespace shard::runtime
