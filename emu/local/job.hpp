#pragma once

#include <functional>

#include "engine/device/device.hpp"

namespace shard::local {

/// Runs the body on so many devices of this process, as often as wanted. \throws what leaves the body on a device
/// first
void run_job(int devices, const std::function<void(Communicator& world)>& body);

}  // namespace shard::local
