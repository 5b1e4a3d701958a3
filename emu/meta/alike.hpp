#pragma once

#include "engine/device/books/memory.hpp"

namespace shard::meta {

/// Runs a job in which only the first and the last of alike devices run. They see a world of all devices, and stand for
/// those between them. Returns the results of the body, by device. Nothing if devices are found not to be alike: results
/// differ, a call treats them in different ways, or a body ends in an error.
std::optional<std::vector<std::string>> results_of_alike(
    int devices, AlikeDevices alike, const std::function<std::string(Communicator& world)>& body);

}  // namespace shard::meta
