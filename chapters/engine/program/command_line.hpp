#pragma once

#include <string>
#include <vector>

#include "engine/device/device.hpp"

namespace shard {

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

}  // namespace shard
