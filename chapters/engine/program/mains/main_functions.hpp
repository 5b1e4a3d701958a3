#pragma once

/// What the main functions of a program with one chapter, and of one with all of them, are made of.

#include <functional>
#include <string>
#include <vector>

#include "engine/device/device.hpp"

namespace shard {

/// Whether the words ask for the version, which device 0 prints then.
bool prints_version(const Communicator& group, const std::vector<std::string>& words);
/// Calls the body, which prints, and returns its exit code. \throws Error file when standard output cannot be written
int written(const std::function<int()>& body);
/// The main function of a program with all chapters.
int shardbook_main(int argc, char** argv);

}  // namespace shard
