#pragma once

#include <memory>
#include <string>

#include "engine/checkpoints/manifest.hpp"
#include "engine/weights/checkpoint.hpp"

namespace shard {

/// Opens the tensors of a checkpoint in any format, from the files with this stem, "model" or "optimizer".
/// Reading a part reads only the bytes of that part, from all files that have some of it. \throws Error file
std::unique_ptr<Checkpoint> open_saved(const std::string& folder, const Manifest& manifest,
                                       const std::string& stem);

/// Compares a file with its digest. \throws Error file when it is damaged
void verify_digest(const std::string& folder, const std::string& file, const std::string& digest);
/// Compares each file with its digest. Each device reads some of the files. A collective. \throws Error file
/// when one is damaged
void verify_digests(Communicator& group, const std::string& folder, const Manifest& manifest);

}  // namespace shard
