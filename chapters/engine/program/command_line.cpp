#include "engine/program/command_line.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <sstream>

#include "engine/basics/near_names.hpp"
#include "engine/basics/printable.hpp"
#include "engine/basics/terminal.hpp"
#include "engine/device/device.hpp"
#include "engine/program/registry.hpp"
#include "engine/record/recording.hpp"

namespace shard {

/// What stands beside an option goes on below its own beginning, and so does a line without an option.
std::string help_text(const std::string& text) {
  std::string shown;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const std::size_t name = std::min(line.find_first_not_of(' '), line.size());
    const std::size_t gap = line.find("  ", name);
    const std::size_t begin =
        gap == line.npos ? name : std::min(line.find_first_not_of(' ', gap), line.size());
    const int room = output_columns() - static_cast<int>(begin);
    const bool is_short = width_of(line) <= output_columns();
    shown +=
        is_short ? line : line.substr(0, begin) + wrapped(line.substr(begin), room, std::string(begin, ' '));
    shown += '\n';
  }
  return shown;
}

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
      return fmt::format("expected {}, given {}{}", fmt::join(allowed, " or "), printable(given),
                         did_you_mean(given, allowed));
    };
    if (!o.allowed.empty()) added->check(refusal, "");
  }
  app.footer(footer);
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // CLI11 takes them in reverse
  } catch (const CLI::CallForHelp&) {
    if (group.device_id() == 0) fmt::print("{}", help_text(app.help()));
    return false;
  } catch (const CLI::ParseError& error) {
    throw Error(Code::usage, "{}: {} (--help lists the options)", program, error.what());
  }
  return true;
}

TextOption record_option(std::string& path) {
  return {"--record",
          "Also write to this JSON file what each device called, computed and held",
          "FILE",
          {},
          &path};
}

Entry job_of(const Communicator& group, const Chapter& chapter, const std::string& command,
             const std::string& variant) {
  Entry job = {{"chapter", chapter.short_name()}, {"folder", chapter.folder},
               {"title", chapter.title},          {"command", command},
               {"devices", group.num_devices()},  {"backend", backend()},
               {"version", SHARDBOOK_VERSION}};
  if (!variant.empty()) job["variant"] = variant;
  return job;
}

int run_recorded_command(Communicator& group, const std::string& path, const std::string& command,
                         const std::string& variant, const std::function<int(Communicator& group)>& body,
                         SourceLine where) {
  const std::string folder = std::filesystem::path(where.file_name()).parent_path().filename();
  return run_recorded(
      group, {.path = path, .job = [&] { return job_of(group, find_chapter(folder), command, variant); }},
      body);
}

}  // namespace shard
