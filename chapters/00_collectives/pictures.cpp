#include "pictures.hpp"

#include <fmt/ranges.h>

#include <numeric>

#include "all_to_all.hpp"
#include "ring.hpp"
#include "scenes.hpp"

namespace shard::primer {

const std::vector<Entry>& all_scenes() {
  static const std::vector<Entry> scenes = {{"barrier", barrier},
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
  return scenes;
}

namespace {

/// How to read the pictures.
void print_legend(const Communicator& group) {
  if (group.device_id() != 0) return;
  const int n = group.num_devices();
  const int last = n - 1;
  const std::string one_addend = written(static_cast<float>(addend(0, last, n)), Ink::addends, n);
  fmt::print("Chapter 00, collectives, on {} device{}\n{}\n\n", n,
             n == 1 ? " (mpirun --oversubscribe -n 4 for more)" : "s",
             wrapped("A column is a device: a process with its own memory. A box is a tensor in it, (rows, "
                     "columns) of float32, 4 bytes each. Numbers tell where they come from:",
                     drawing_columns()));
  fmt::print("    {:12}device {}'s number 0\n", fmt::format("{}0", last), last);
  fmt::print("    {}device {}'s addend of a sum, a digit for each device\n", padded(one_addend, 12), last);
  fmt::print("    {:<12}the sum of all addends\n\n", sum_of_addends(0, n, n));
  fmt::print("{}\n\n", wrapped("Below each picture: what every device sent, as its ledger measured it, and "
                               "what a closed form, a formula derived by hand, says that it sends.",
                               drawing_columns()));
}

/// One line a scene: what all devices together sent.
void print_table(const std::vector<Outcome>& outcomes) {
  auto sum = [](const std::vector<Index>& v) { return std::accumulate(v.begin(), v.end(), Index{0}); };
  fmt::print("sent by all devices     messages  closed form     bytes  closed form\n");
  for (const Outcome& o : outcomes)
    fmt::print("{:22}{:>10}{:>13}{:>10}{:>13}   {}\n", o.name, sum(o.messages.measured),
               sum(o.messages.formula), sum(o.bytes.measured), sum(o.bytes.formula),
               o.is_right ? "ok" : "DIFFERS");
  if (!all_right(outcomes)) fmt::print("a value or a figure above is not what it should be\n");
}

}  // namespace

std::vector<Outcome> play(Communicator& group, const std::string& only) {
  if (only.empty()) print_legend(group);
  std::vector<Outcome> outcomes;
  for (const Entry& entry : all_scenes()) {
    if (!only.empty() && entry.name != only) continue;
    Scene scene(group, entry.name);
    entry.play(group, scene);
    outcomes.push_back(scene.ends());
  }
  if (group.device_id() == 0) print_table(outcomes);
  return outcomes;
}

}  // namespace shard::primer
