#pragma once

/// All scenes, in the order in which they are read.

#include <string>
#include <vector>

#include "scene.hpp"

namespace shard::primer {

/// A scene and its name.
struct Entry {
  std::string name;
  void (*play)(Communicator&, Scene&);
};
/// In the order in which they are read.
const std::vector<Entry>& all_scenes();

/// Plays all scenes, or only the one of this name. Device 0 prints the pictures, and a table of what was sent.
std::vector<Outcome> play(Communicator& group, const std::string& only = "");

}  // namespace shard::primer
