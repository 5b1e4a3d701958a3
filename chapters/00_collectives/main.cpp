///     mpirun -n 4 build/emu/00_collectives
///
/// Chapter 00: every collective, drawn on the devices of this run, 1 to 8 of them, from what they hold.

#include "mistakes.hpp"
#include "more_scenes.hpp"
#include "options.hpp"
#include "results.hpp"

namespace shard::primer {

int play(const Options& options) {
  if (n() > 8)
    throw Error(Code::usage, fmt::format("00_collectives: expected 1 to 8 devices, given {}", n()));
  if (!options.mistake.empty()) mistakes.at(options.mistake)();
  if (options.only.empty()) print_legend();
  const std::vector<Outcome> outcomes = play_scenes(options.only);
  if (me() == 0) print_table(outcomes);
  if (me() == 0 && !options.report.empty()) write_report(options.report, outcomes);
  return all_right(outcomes) ? 0 : static_cast<int>(Code::differs);
}

int parse_and_play(int argc, char** argv) {
  std::vector<std::string> scenes, planned_mistakes;
  for (const Entry& scene : all_scenes()) scenes.push_back(scene.name);
  for (const auto& [name, make] : mistakes) planned_mistakes.push_back(name);
  std::optional<Options> options = parse(argc, argv, scenes, planned_mistakes);
  return options ? play(*options) : 0;
}

}  // namespace shard::primer

int main(int argc, char** argv) {
  return shard::run_on_devices(argc, argv, [&] { return shard::primer::parse_and_play(argc, argv); });
}
