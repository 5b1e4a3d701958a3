///     mpirun --oversubscribe -n 4 build/emu/00_collectives
///
/// Chapter 00: every collective, drawn on the devices of this run, 1 to 8 of them, from what they hold.

#include <fmt/ranges.h>

#include "engine/device/books/observer.hpp"
#include "engine/program/command_line.hpp"
#include "engine/program/registry.hpp"
#include "engine/program/report.hpp"
#include "mistakes.hpp"
#include "pictures.hpp"

namespace shard::primer {

namespace {

/// Plays scenes, or makes a mistake.
int play_all(Communicator& group, const std::string& only, const std::string& mistake,
             const std::string& report) {
  if (!mistake.empty()) {
    note_section(mistake, true);
    mistakes.at(mistake)(group);
  }
  const std::vector<Outcome> outcomes = play(group, only);
  if (group.device_id() == 0 && !report.empty())
    write_report(report, "00", "collectives", outcomes, group.num_devices());
  return all_right(outcomes) ? 0 : static_cast<int>(Code::differs);
}

int parse_and_play(Communicator& group, const std::vector<std::string>& words) {
  std::vector<std::string> scenes, planned;
  for (const Entry& scene : all_scenes()) scenes.push_back(scene.name);
  for (const auto& [name, make] : mistakes) planned.push_back(name);
  std::string only, mistake, report, record;
  const bool goes_on = parse_options(
      group, "00_collectives", words,
      "Chapter 00 of shardbook: every collective, drawn on 1 to 8 devices, and what each device sends",
      {{"--only", fmt::format("One scene instead of all: {}", fmt::join(scenes, ", ")), "NAME", scenes,
        &only},
       {"--mistake", fmt::format("A mistake on purpose: {}", fmt::join(planned, ", ")), "NAME", planned,
        &mistake},
       {"--report", "Also write the figures to this JSON file", "FILE", {}, &report},
       record_option(record)},
      "Exit code 0 when every value and every figure is as it must be, otherwise 86; a mistake on\n"
      "purpose ends with 81, 82 or 84.");
  if (!goes_on) return 0;
  if (const int n = group.num_devices(); n > 8)
    throw Error(Code::usage, "00_collectives: expected 1 to 8 devices, given {}", n);
  return run_recorded_command(
      group, record, "scenes", mistake.empty() ? only : mistake,
      [&](Communicator& recorded) { return play_all(recorded, only, mistake, report); });
}

const RegisteredChapter chapter({.command = parse_and_play});

}  // namespace

}  // namespace shard::primer
