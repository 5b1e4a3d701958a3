#pragma once

#include <string>
#include <vector>

#include "engine/program/report.hpp"

namespace shard::primer {

/// Names of all scenes, in the order in which they are read.
std::vector<std::string> scene_names();
/// Plays all scenes on the devices of a group, or only one.
std::vector<Outcome> play_scenes(Communicator& group, const std::string& only);

}  // namespace shard::primer
