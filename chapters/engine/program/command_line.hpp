#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/device/device.hpp"
#include "engine/record/log.hpp"

namespace shard {

struct Chapter;

/// An option with a text as its value, or a flag.
struct TextOption {
  std::string name;  ///< "--only"
  std::string help;
  std::string type;                  ///< "NAME", for --help
  std::vector<std::string> allowed;  ///< any text if empty
  std::string* value;                ///< where the value is written; null for a flag
  bool* flag = nullptr;              ///< where a flag is written
};

/// The text of --help, its long lines wrapped.
std::string help_text(const std::string& text);

/// Parses a command line of such options. False when it asked for help, which device 0 has then printed.
/// \throws Error usage
bool parse_options(const Communicator& group, const std::string& program,
                   const std::vector<std::string>& words, const std::string& summary,
                   const std::vector<TextOption>& options, const std::string& footer);

/// --record, for a command line of such options.
TextOption record_option(std::string& path);
/// What each record says of its run. `variant`: empty if the chapter has none, or if several run.
Entry job_of(const Communicator& group, const Chapter& chapter, const std::string& command,
             const std::string& variant);
/// Runs a command of a chapter that has a command line of its own, and records all of it if `path` names a file. The
/// chapter is that of the caller's folder. \throws Error file
int run_recorded_command(Communicator& group, const std::string& path, const std::string& command,
                         const std::string& variant, const std::function<int(Communicator& group)>& body,
                         SourceLine where = SourceLine::current());

}  // namespace shard
