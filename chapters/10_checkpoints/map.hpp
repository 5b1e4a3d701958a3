#pragma once

/// What a user says of a map, and the map that comes of it.

#include "10_checkpoints/dispatch/data_flow.hpp"
#include "10_checkpoints/dispatch/device_map.hpp"
#include "engine/program/command_line.hpp"

namespace shard::checkpoints {

struct MapRequest {
  std::string params, how = "auto", memory, no_split, dtype;

  /// Options that write here.
  std::vector<TextOption> options();
  /// The type that --dtype names, in the spelling of files.
  std::optional<std::string> converted_to() const;
};

struct MadeMap {
  dispatch::FilledMap filled;
  std::vector<dispatch::KeptWhole> derived;  ///< the classes that stay whole, where none were named
  dispatch::Memory memory;                   ///< as given
  dispatch::Memory shares;                   ///< as filled
};

/// Makes the map, or reads it. \throws Error usage, file
MadeMap make_map(const MapRequest& request, const dispatch::Network& network);

}  // namespace shard::checkpoints
