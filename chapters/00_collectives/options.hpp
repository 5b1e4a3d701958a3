#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/device/device.hpp"

namespace shard::primer {

/// What the command line says.
struct Options {
  std::string only;     ///< one scene instead of all
  std::string mistake;  ///< a mistake on purpose
  std::string report;   ///< a file for the figures
};

/// Nothing when it asked for help, which device 0 has then printed. \throws Error usage
std::optional<Options> parse(const Communicator& group, const std::vector<std::string>& words,
                             const std::vector<std::string>& scenes,
                             const std::vector<std::string>& mistakes);

}  // namespace shard::primer
