#pragma once

/// The options of a chapter's commands.

#include <CLI/CLI.hpp>

#include "engine/program/commands.hpp"

namespace shard {

/// The names of enum Precision, in its order.
inline const std::vector<std::string> precisions = {"float32", "tf32", "bf16"};

/// A user's text in a message: printable and quoted.
std::string shown(const std::string& text);
/// The names of the variants that take an option: "all-reduce or bucketed".
std::string takers_of(const std::string& option, const Chapter& chapter);

/// Adds this chapter's commands with their options, which parsing writes into `arguments`. `defaults` are
/// shown by --help.
void add_commands(CLI::App& app, const Chapter& chapter, const Options& defaults, Arguments& arguments);

/// Reads the manifest of the checkpoint that `--resume` names, if any, and sets each option that was not
/// given to its recorded value. Seed, optimizer and network must be the checkpoint's; other options may
/// differ. \throws Error file; usage
void take_recorded_options(CLI::App& command, const Chapter& chapter, Arguments& arguments);

}  // namespace shard
