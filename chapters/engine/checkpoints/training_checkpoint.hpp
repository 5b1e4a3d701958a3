#pragma once

#include "engine/checkpoints/save.hpp"
#include "engine/checkpoints/saved_checkpoint.hpp"
#include "engine/optimizer.hpp"

namespace shard {

/// Saves parameters, the state of their optimizer, and the record. `order`: the names of all parameters.
/// A collective. \throws Error file
void save_training(ShardedEngine& engine, Optimizer& optimizer, const std::vector<std::string>& order,
                   const std::string& path, const SaveForm& form, const TrainingRecord& record);

/// Loads parameters and state that some other devices, with another engine, may have saved; each device reads
/// its part. \throws Error file
void load_training(ShardedEngine& engine, Optimizer& optimizer, const std::string& folder,
                   const Manifest& manifest);

/// What this device holds of the engine's parameters.
std::vector<HeldPart> held_parameters(ShardedEngine& engine);

}  // namespace shard
