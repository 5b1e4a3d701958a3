#pragma once

/// The options of a chapter's commands.

#include <CLI/CLI.hpp>

#include "engine/program/commands.hpp"

namespace shard {

/// As in enum Precision.
inline const std::vector<std::string> precisions = {"float32", "tf32", "bf16"};

/// Text of the user's in a message.
std::string shown(const std::string& text);
/// The names of the variants that an option is for: "all-reduce or bucketed".
std::string takers_of(const std::string& option, const Chapter& chapter);

/// Adds the commands that this chapter has, with their options, which parsing writes into `arguments`.
/// `defaults`: of the network's options, for --help. What this returns must live until then.
std::vector<std::shared_ptr<void>> add_commands(CLI::App& app, const Chapter& chapter,
                                                const Options& defaults, Arguments& arguments);

}  // namespace shard
