#pragma once

#include <functional>

#include "emu/local/absence.hpp"
#include "engine/device/device.hpp"

namespace shard::local {

/// Runs the body on `devices` devices of this process. It may be called repeatedly. \throws the first exception
/// of a body
void run_job(int devices, const std::function<void(Communicator& world)>& body, Absence* absence = nullptr);

}  // namespace shard::local
