#pragma once

#include <cstdlib>
#include <string>

namespace shard {

/// The path of a file of chapters/data/. The environment's SHARDBOOK_DATA names another folder: that of a copy of
/// the programs on a machine without the project.
inline std::string data_path(const std::string& file) {
  const char* other = std::getenv("SHARDBOOK_DATA");
  return (other != nullptr ? other : SHARDBOOK_DATA) + ("/" + file);
}

}  // namespace shard
