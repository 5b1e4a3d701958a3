#pragma once

#include <string>
#include <vector>

#include "engine/program/registry.hpp"

namespace shard {

/// Parses `words`, which follow the program's name, and carries out the command. Returns an exit code.
int run_chapter(Communicator& group, const Chapter& chapter, const std::vector<std::string>& words);

}  // namespace shard
