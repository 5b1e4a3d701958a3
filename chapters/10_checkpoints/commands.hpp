#pragma once

/// What can be done with a checkpoint in files. Each command runs on one device. It returns an exit code.

#include <optional>
#include <string>
#include <vector>

#include "engine/device/device.hpp"

namespace shard::checkpoints {

/// Prints names, shapes, types, where each tensor lies, and what is missing or too much. Code 65 if anything
/// is.
int show(const std::string& path);

/// Compares two checkpoints tensor by tensor: the largest difference in units in the last place, and where
/// the first one is. Code 86 if they differ.
int diff(const std::string& one, const std::string& other);

/// How `reshard` writes.
struct NewForm {
  std::string format = "sharded";    ///< "gathered" (one file), or "distributed" (one, as of one device)
  std::uint64_t most_bytes = 0;      ///< of a file, unless a tensor is larger by itself
  std::optional<std::string> dtype;  ///< of floating tensors; none: as they are
  bool is_unverified = false;        ///< files are not compared with their digests before
};
/// Writes a checkpoint anew into a folder, in pieces of 256 KiB. Until all is written, the
/// folder keeps what it had. \throws Error file
int reshard(const std::string& from, const std::string& to, const NewForm& form);

/// Prints which device holds which module of a network, by the rules of dispatch/. `words` are its
/// options. \throws Error usage, file
int map(const Communicator& group, const std::vector<std::string>& words);
/// `infer` or `generate` with a network that lies as a map says. A collective. \throws Error usage, file
int run_dispatched(Communicator& group, const std::string& command, const std::vector<std::string>& words);

}  // namespace shard::checkpoints
