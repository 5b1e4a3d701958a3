#include "options.hpp"

#include <fmt/ranges.h>

#include "drawing.hpp"
#include "engine/program/command_line.hpp"

namespace shard::primer {

std::optional<Options> parse(const Communicator& group, const std::vector<std::string>& words,
                             const std::vector<std::string>& scenes,
                             const std::vector<std::string>& mistakes) {
  Options o;
  const std::vector<TextOption> options = {
      {"--only", wrapped(fmt::format("One scene instead of all: {}", fmt::join(scenes, ", ")), 66), "NAME",
       scenes, &o.only},
      {"--mistake", fmt::format("A mistake on purpose: {}", fmt::join(mistakes, ", ")), "NAME", mistakes,
       &o.mistake},
      {"--report", "Also write the figures to this JSON file", "FILE", {}, &o.report}};
  const bool goes_on = parse_options(
      group, "00_collectives", words,
      "Chapter 00 of shardbook: every collective, drawn on 1 to 8 devices, and what each device sends",
      options,
      "Exit code 0 when every value and every figure is as it must be, otherwise 86; a mistake on\n"
      "purpose ends with 81, 82 or 84.");
  return goes_on ? std::optional(o) : std::nullopt;
}

}  // namespace shard::primer
