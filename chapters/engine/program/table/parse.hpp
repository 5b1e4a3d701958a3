#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/program/command.hpp"

namespace shard {

/// A row of the table of commands.
struct CommandRow {
  std::string name;
  std::string summary;  ///< for --help
  std::function<std::shared_ptr<Command>()> make;
  bool (*is_in)(const Chapter& chapter);  ///< whether a chapter has it; null: each
};

/// The command that words have chosen; null where they ask for help.
struct Chosen {
  std::string name = {};
  std::shared_ptr<const Command> command = {};
};

/// Chooses a row by the words that follow the program's name, and reads its options. Prints the help that they ask
/// for. \throws Error usage; file
Chosen parse(const std::vector<CommandRow>& table, const Communicator& group, const Chapter& chapter,
             const std::vector<std::string>& words);

}  // namespace shard
