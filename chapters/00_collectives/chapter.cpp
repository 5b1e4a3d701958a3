///     mpirun -n 4 build/emu/00_collectives
///
/// Chapter 00: every collective, drawn on the devices of this run, 1 to 8 of them, from what they hold.

#include "all_scenes.hpp"
#include "engine/program/registry.hpp"
#include "mistakes.hpp"
#include "options.hpp"
#include "results.hpp"

namespace shard::primer {

/// How to read the pictures.
void print_legend(const Communicator& group) {
  if (group.device_id() != 0) return;
  const int n = group.num_devices();
  const int last = n - 1;
  const std::string one_addend = written(static_cast<float>(addend(0, last, n)), Ink::addends, n);
  fmt::print(
      "Chapter 00, collectives, on {} device{}\n{}\n\n", n, n == 1 ? " (mpirun -n 4 for more)" : "s",
      wrapped(
          "A column is a device: a process with its own memory. A box is a tensor in it, (rows, columns) of "
          "float32, 4 bytes each. Numbers tell where they come from:"));
  fmt::print("    {:12}device {}'s number 0\n", fmt::format("{}0", last), last);
  fmt::print("    {}device {}'s addend of a sum, a digit for each device\n", padded(one_addend, 12), last);
  fmt::print("    {:<12}the sum of all addends\n\n", sum_of_addends(0, n, n));
  fmt::print(
      "{}\n\n",
      wrapped("Below each picture: what every device sent, as its ledger measured it, and what a closed "
              "form, a formula derived by hand, says that it sends."));
}

int play(Communicator& group, const Options& options) {
  const int n = group.num_devices();
  if (n > 8) throw Error(Code::usage, fmt::format("00_collectives: expected 1 to 8 devices, given {}", n));
  if (!options.mistake.empty()) mistakes.at(options.mistake)(group);
  if (options.only.empty()) print_legend(group);
  const std::vector<Outcome> outcomes = play_scenes(group, options.only);
  if (group.device_id() == 0) print_table(outcomes);
  if (group.device_id() == 0 && !options.report.empty()) write_report(options.report, outcomes, n);
  return all_right(outcomes) ? 0 : static_cast<int>(Code::differs);
}

int parse_and_play(Communicator& world, const std::vector<std::string>& words) {
  std::vector<std::string> planned_mistakes;
  for (const auto& [name, make] : mistakes) planned_mistakes.push_back(name);
  std::optional<Options> options = parse(world, words, scene_names(), planned_mistakes);
  return options ? play(world, *options) : 0;
}

const RegisteredChapter chapter({.command = parse_and_play});

}  // namespace shard::primer
