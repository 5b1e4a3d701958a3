#pragma once

#include <memory>
#include <string>

#include "engine/checkpoints/manifest.hpp"
#include "engine/checkpoints/save.hpp"
#include "engine/engines/optimizer.hpp"
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

/// Says on standard error which files were not compared with their digests, since the user wished so.
void say_not_verified(const std::string& folder, const Manifest& manifest);

/// Saves the parameters, the optimizer's state, and the records. `order`: the names of all parameters. A
/// collective. \throws Error file
void save_training(ShardedEngine& engine, Optimizer& optimizer, const std::vector<std::string>& order,
                   const std::string& path, const SaveForm& form, const Records& records);

/// Loads parameters and state. Another number of devices and another engine may have saved them; each device
/// reads its own part. \throws Error file
void load_training(ShardedEngine& engine, Optimizer& optimizer, const std::string& folder,
                   const Manifest& manifest);

}  // namespace shard
