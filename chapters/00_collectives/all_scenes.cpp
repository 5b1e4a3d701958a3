#include "all_scenes.hpp"

#include "all_to_all.hpp"
#include "ring.hpp"
#include "scenes.hpp"

namespace shard::primer {

namespace {

/// A scene and its name.
struct Entry {
  std::string name;
  void (*play)(Communicator&, Scene&);
};
/// In the order in which they are read.
std::vector<Entry> all_scenes() {
  return {{"barrier", barrier},
          {"send_receive", send_receive},
          {"send_async", send_async},
          {"broadcast", broadcast},
          {"all_gather", all_gather},
          {"reduce_scatter", reduce_scatter},
          {"all_reduce", all_reduce},
          {"ring", ring},
          {"uneven", uneven},
          {"split", split},
          {"all_to_all", all_to_all},
          {"all_to_all_axes", all_to_all_axes},
          {"all_to_all_counts", all_to_all_counts}};
}

}  // namespace

std::vector<std::string> scene_names() {
  std::vector<std::string> names;
  for (const Entry& scene : all_scenes()) names.push_back(scene.name);
  return names;
}

std::vector<Outcome> play_scenes(Communicator& group, const std::string& only) {
  std::vector<Outcome> outcomes;
  for (const Entry& entry : all_scenes()) {
    if (!only.empty() && entry.name != only) continue;
    Scene scene(group, entry.name);
    entry.play(group, scene);
    outcomes.push_back(scene.ends());
  }
  return outcomes;
}

}  // namespace shard::primer
