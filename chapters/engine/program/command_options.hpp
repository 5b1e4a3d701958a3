#pragma once

/// The options of a chapter's commands: what each command's add_options is written with.

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/checkpoints/save.hpp"
#include "engine/program/command.hpp"

namespace shard {

/// The names of enum Precision, in its order.
inline const std::vector<std::string> precisions = {"float32", "tf32", "bf16"};

/// A user's text in a message: printable and quoted.
std::string shown(const std::string& text);

/// \name What an option's text must be
/// @{
/// From 1 to 2^30.
CLI::Validator positive();
/// A finite number above 0, in single or in double precision.
CLI::Validator positive_real();
CLI::Validator positive_double();
/// From 0 to 2^64-1.
CLI::Validator whole_number();
/// Not the empty text, which would look like an option that is not given.
CLI::Validator path();
/// One of these. `why_not` has the reasons against texts that people expect here.
CLI::Validator one_of(const std::vector<std::string>& names,
                      const std::map<std::string, std::string>& why_not = {});
/// @}

/// Adds an option. `type` is its value's name in --help.
template <class Value>
CLI::Option* add(CLI::App& command, const std::string& name, const std::string& type, Value& value,
                 const std::string& help, const CLI::Validator& check) {
  return command.add_option(name, value, help)->check(check)->type_name(type);
}
/// One whose text is passed to a function.
CLI::Option* add_read(CLI::App& command, const std::string& name, const std::string& type,
                      const std::function<void(const std::string&)>& read, const std::string& help);

/// Options that variants or their workloads declare, each name once. A value is refused here if no variant
/// accepts it. After parsing, the chosen variant's own options are checked.
class DeclaredOptions {
 public:
  /// Adds those of all commands.
  DeclaredOptions(const CommandLine& line, Options& given);
  /// Adds those of commands for which a network's sizes are chosen.
  void add_sizes();

 private:
  void add(const std::vector<OptionText>& options, const Options& initial = {});

  CommandLine line_;
  Options& given_;
  std::set<std::string> added_ = {};
};

/// \name Options that several commands have
/// @{
/// --variant, for one of all variants, and options of all commands that run its engine.
DeclaredOptions add_engine_options(const CommandLine& line, Command& command);
/// --batch, a number of rows.
void add_rows(const CommandLine& line, Index& batch, const std::string& help);
/// "64", or "64, decoder 8": the default size of each kind of network that a chapter trains.
std::string usual(const Chapter& chapter, Index TrainingDefaults::*size);
/// Replaces a size that was not given by the default of the variant's workload.
void take_usual(const CommandLine& line, const Command& command, const char* option,
                Index TrainingDefaults::*size, Index& value);
void add_optimizer_name(const CommandLine& line, std::string& optimizer);
/// For writing a checkpoint; `folder` is the name of the option for its folder.
void add_saving(const CommandLine& line, const std::string& folder, const std::string& help,
                std::string& save, SaveForm& form);
void add_verification(const CommandLine& line, bool& unverified);
void add_config(const CommandLine& line, std::string& config);
void add_record(const CommandLine& line, Command& command);
/// @}

/// The names of the variants, for --variant.
CLI::Validator name_of_variant(const Chapter& chapter);

}  // namespace shard
