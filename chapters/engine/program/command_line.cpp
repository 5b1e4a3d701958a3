#include "engine/program/command_line.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "engine/basics/printable.hpp"
#include "engine/device/device.hpp"

namespace shard {

bool parse_options(const Communicator& group, const std::string& program,
                   const std::vector<std::string>& words, const std::string& summary,
                   const std::vector<TextOption>& options, const std::string& footer) {
  CLI::App app(summary, "mpirun --oversubscribe -n 4 build/emu/" + program);
  for (const TextOption& o : options) {
    if (o.value == nullptr) {
      app.add_flag(o.name, *o.flag, o.help);
      continue;
    }
    CLI::Option* added = app.add_option(o.name, *o.value, o.help)->type_name(o.type);
    const auto refusal = [allowed = o.allowed](const std::string& given) {
      if (std::ranges::find(allowed, given) != allowed.end()) return std::string();
      return fmt::format("expected {}, given {}", fmt::join(allowed, " or "), printable(given));
    };
    if (!o.allowed.empty()) added->check(refusal, "");
  }
  app.footer(footer);
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // CLI11 takes them in reverse
  } catch (const CLI::CallForHelp&) {
    if (group.device_id() == 0) fmt::print("{}", app.help());
    return false;
  } catch (const CLI::ParseError& error) {
    throw Error(Code::usage, "{}: {} (--help lists the options)", program, error.what());
  }
  return true;
}

}  // namespace shard
