#include "options.hpp"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>

#include "drawing.hpp"

namespace shard::primer {

std::optional<Options> parse(int argc, char** argv, const std::vector<std::string>& scenes,
                             const std::vector<std::string>& mistakes) {
  CLI::App app(
      "Chapter 00 of shardbook: every collective, drawn on 1 to 8 devices, and what each device sends",
      "mpirun -n 4 build/emu/00_collectives");
  Options options;
  auto one_of = [](const std::vector<std::string>& names) { return CLI::IsMember(names).description(""); };
  app.add_option("--only", options.only,
                 wrapped(fmt::format("One scene instead of all: {}", fmt::join(scenes, ", ")), 66))
      ->check(one_of(scenes))
      ->type_name("NAME");
  app.add_option("--mistake", options.mistake,
                 fmt::format("A mistake on purpose: {}", fmt::join(mistakes, ", ")))
      ->check(one_of(mistakes))
      ->type_name("NAME");
  app.add_option("--report", options.report, "Also write the figures to this JSON file")->type_name("FILE");
  app.footer(
      "Exit code 0 when every value and every figure is as it must be, otherwise 86; a mistake on\n"
      "purpose ends with 81, 82 or 84.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    if (world().device_id() == 0) fmt::print("{}", app.help());
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    throw Error(Code::usage, fmt::format("00_collectives: {} (--help lists the options)", error.what()));
  }
  return options;
}

}  // namespace shard::primer
