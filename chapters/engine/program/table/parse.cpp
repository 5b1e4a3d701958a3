#include "engine/program/table/parse.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>

#include "engine/basics/near_names.hpp"
#include "engine/basics/printable.hpp"
#include "engine/device/this_device.hpp"
#include "engine/program/command_line.hpp"
#include "engine/program/command_options.hpp"
#include "engine/program/default_network.hpp"

namespace shard {

namespace {

/// Inserts `train`, the default command, where the words name none.
std::vector<std::string> with_command(std::vector<std::string> words) {
  bool has_command = !words.empty() && (words[0].empty() || words[0][0] != '-');
  bool asks_for_help = !words.empty() && (words[0] == "--help" || words[0] == "-h");
  if (!has_command && !asks_for_help) words.insert(words.begin(), "train");
  return words;
}

/// The options of a command that an unknown one may stand for: by its letters, or as other programs call it.
std::string option_meant(const CLI::App& command, const std::string& unknown) {
  static const std::map<std::string, std::string> elsewhere{
      {"--dtype", "--precision"},
      {"--lr", "--learning-rate"},
      {"--epochs", "--steps"},
      {"--batch-size", "--batch"},
      {"--seq-len", "--length"},
      {"--hidden-size", "--hidden-dim"},
      {"--num-layers", "--layers"},
      {"--prompt", "--text"},
      {"--output", "--out"},
      {"--checkpoint", "--resume"},
      {"--weights", "--params"},
      {"--model", "--params"},
      {"--gradient-accumulation-steps", "--micro-batches"}};
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  const auto found = elsewhere.find(unknown);
  if (found != elsewhere.end() && std::ranges::find(names, found->second) != names.end())
    return ": did you mean " + found->second + '?';
  return did_you_mean(unknown, names);
}

/// The message for a mistake on the command line: CLI11's own, or a plainer one.
std::string explain(const CLI::App& app, const std::string& command, const CLI::ParseError& error) {
  std::string what = error.what();
  const std::vector<std::string> unknown = app.remaining(true);
  const bool lacks_option = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && !unknown.empty();
  if (lacks_option || dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr)
    return fmt::format("expected an option of {}, given {}{}", command, shown(unknown.front()),
                       option_meant(*app.get_subcommands().front(), unknown.front()));
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr)
    return what.substr(0, what.find(':')) + ": expected one value, given none or several";
  return what;
}

std::string about(const Chapter& chapter, int devices) {
  return fmt::format("Chapter {} of shardbook, {}, on {} device{}", chapter.short_name(), chapter.title,
                     devices, devices == 1 ? " (mpirun --oversubscribe -n 4 for more)" : "s");
}

/// What a chapter can do, with examples. A command's own --help lists its options.
std::string summary(const CLI::App& app, const Chapter& chapter, int devices) {
  const std::string name = chapter.short_name(), run = "./chapters/run " + name;
  std::string text =
      fmt::format("{}\nUsage: {} [COMMAND] [OPTIONS]\n\n", about(chapter, devices), chapter.folder);
  for (const CLI::App* command : app.get_subcommands({}))
    text += fmt::format("  {:<12}{}\n", command->get_name(), command->get_description());
  return text + fmt::format(
                    "\nFor example:\n"
                    "  {} -n 4 train --variant {} --steps 50\n"
                    "  {} -n 4 owns --variant {}\n"
                    "  {} costs --devices 8\n\n"
                    "{} train --help lists all options of train, and so on.\n",
                    run, chapter.variants.back().name, run, chapter.variants.front().name, run, run);
}

/// The sizes of networks, if help may be asked for, which shows them.
Options sizes_for_help(int devices, const Chapter& chapter, const std::vector<std::string>& words) {
  const bool asks = std::ranges::any_of(
      words, [](const std::string& word) { return word.starts_with("-h") || word.starts_with("--help"); });
  return asks ? with_default_network(devices, chapter, chapter.variants.front(), Options()) : Options();
}

}  // namespace

Chosen parse(const std::vector<CommandRow>& table, const Communicator& group, const Chapter& chapter,
             const std::vector<std::string>& given) {
  const std::string& name = chapter.folder;
  const int devices = group.num_devices();
  const Options sizes = sizes_for_help(devices, chapter, given);
  CLI::App app(about(chapter, devices), name);
  app.require_subcommand(1);
  std::map<std::string, std::shared_ptr<Command>> commands;
  std::vector<std::string> known;
  for (const CommandRow& row : table) {
    if (row.is_in != nullptr && !row.is_in(chapter)) continue;
    known.push_back(row.name);
    commands[row.name] = row.make();
    commands[row.name]->add_options({*app.add_subcommand(row.name, row.summary), group, chapter, sizes});
  }
  const std::vector<std::string> words = with_command(given);
  const std::string& first = words.front();
  if (first[0] != '-' && std::ranges::find(known, first) == known.end())
    throw Error(Code::usage, "{}: expected a command, {}, given {}{} (--help lists the options)", name,
                fmt::join(known, " or "), shown(first), did_you_mean(first, known));
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // CLI11 takes them in reverse
  } catch (const CLI::CallForHelp&) {
    const bool is_of_command = !app.get_subcommands().empty();
    if (this_device() == 0)
      fmt::print("{}", help_text(is_of_command ? app.help() : summary(app, chapter, devices)));
    return {};
  } catch (const CLI::ParseError& error) {
    throw Error(Code::usage, "{} {}: {} (--help lists the options)", name, first, explain(app, first, error));
  }
  CLI::App& chosen = *app.get_subcommands().front();
  const std::shared_ptr<Command> command = commands.at(chosen.get_name());
  command->complete({chosen, group, chapter, sizes});
  return {chosen.get_name(), command};
}

}  // namespace shard
