///     ./chapters/run 06 -n 2 train --variant zero3 --steps 2 --save DIR && ./chapters/run 10 -n 1 show DIR
///
/// Chapter 10: a checkpoint in files, looked at, compared and divided anew; and maps from modules to devices.

#include <fmt/format.h>

#include <algorithm>

#include "commands.hpp"
#include "engine/basics/printable.hpp"
#include "engine/checkpoints/split.hpp"
#include "engine/device/error.hpp"
#include "engine/program/command_line.hpp"
#include "engine/program/registry.hpp"

namespace shard::checkpoints {

namespace {

int parse_and_reshard(const Communicator& group, const std::vector<std::string>& words) {
  std::string from, to, format = "sharded", size = "5GB", dtype;
  bool is_unverified = false;
  const bool goes_on = parse_options(
      group, "10_checkpoints reshard", words, "Write a checkpoint anew",
      {{"--from", "A safetensors file, or a folder with one or with an index", "PATH", {}, &from},
       {"--to", "The folder to write; its other files are kept", "DIR", {}, &to},
       {"--format",
        "sharded, gathered (one file) or distributed (one, with a manifest of parts)",
        "NAME",
        {"sharded", "gathered", "distributed"},
        &format},
       {"--max-shard-size", "Most bytes of a file, unless one tensor is larger", "SIZE=5GB", {}, &size},
       {"--dtype",
        "f64, f32, f16 or bf16, for floating tensors",
        "NAME",
        {"f64", "f32", "f16", "bf16"},
        &dtype},
       {"--no-verify", "Do not compare files with their digests", "", {}, nullptr, &is_unverified}},
      "What the folder had stays until all is written.");
  if (!goes_on) return 0;
  NewForm form{format, parse_size("--max-shard-size", size), std::nullopt, is_unverified};
  for (char& c : dtype) c = static_cast<char>(std::toupper(c));
  if (!dtype.empty()) form.dtype = dtype;
  if (from.empty() || to.empty())
    throw Error(Code::usage, "reshard: expected --from PATH and --to DIR, given " +
                                 std::string(from.empty() ? "no --from" : "no --to"));
  return reshard(from, to, form);
}

constexpr const char* help =
    "Chapter 10 of shardbook, checkpoints: files, looked at, compared and divided anew\n\n"
    "show PATH      names, shapes, types, where each tensor lies, what is missing or too much\n"
    "diff A B       the largest difference of each tensor, in units in the last place\n"
    "reshard --from PATH --to DIR   write it anew (--help lists the options)\n"
    "map --params DIR --memory PLACES   which device holds which module (--help lists the options)\n"
    "infer, generate --params DIR --memory PLACES   run a network that lies as such a map says\n";

[[noreturn]] void refuse_word(const std::string& given) {
  throw Error(Code::usage, "10_checkpoints: expected show, diff, reshard, map, infer or generate, given {}",
              printable(given));
}

/// What a command does, on device 0 alone.
int carry_out(const Communicator& group, const std::vector<std::string>& given) {
  auto is_option = [](const std::string& word) { return word.starts_with('-'); };
  const auto begin = std::ranges::find_if(given, is_option);
  const std::vector<std::string> paths(given.begin() + (begin == given.begin() ? 0 : 1), begin);
  const std::vector<std::string> options(begin, given.end());
  const std::string command = begin == given.begin() ? "" : given.front();
  auto require_paths = [&](const std::string& expected, std::size_t number) {
    if (paths.size() != number)
      throw Error(Code::usage, "{}: expected {}, given {}", command, expected, paths.size());
  };
  if (command == "reshard") {
    require_paths("no path but --from and --to", 0);
    return parse_and_reshard(group, options);
  }
  if (command == "map") {
    require_paths("no path but --params", 0);
    return map(group, options);
  }
  if (given.empty() || (!options.empty() && (options[0] == "--help" || options[0] == "-h"))) {
    fmt::print("{}", help_text(help));
    return 0;
  }
  if (!options.empty()) refuse_word(options[0]);
  if (command == "show") {
    require_paths("one path", 1);
    return show(paths[0]);
  }
  if (command != "diff") refuse_word(command);
  require_paths("two paths", 2);
  return diff(paths[0], paths[1]);
}

int command(Communicator& group, const std::vector<std::string>& words) {
  if (!words.empty() && (words[0] == "infer" || words[0] == "generate"))
    return run_dispatched(group, words[0], {words.begin() + 1, words.end()});
  return group.device_id() == 0 ? carry_out(group, words) : 0;
}

const RegisteredChapter chapter({.command = command});

}  // namespace

}  // namespace shard::checkpoints
