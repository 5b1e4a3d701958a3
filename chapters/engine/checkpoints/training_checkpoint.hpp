#pragma once

#include "engine/checkpoints/save.hpp"
#include "engine/checkpoints/saved_checkpoint.hpp"
#include "engine/engines/optimizer.hpp"

namespace shard {

/// Saves the parameters, the optimizer's state, and the record. `order`: the names of all parameters. A
/// collective. \throws Error file
void save_training(ShardedEngine& engine, Optimizer& optimizer, const std::vector<std::string>& order,
                   const std::string& path, const SaveForm& form, const TrainingRecord& record);

/// Loads parameters and state. Another number of devices and another engine may have saved them; each device
/// reads its own part. \throws Error file
void load_training(ShardedEngine& engine, Optimizer& optimizer, const std::string& folder,
                   const Manifest& manifest);

/// The parts of the engine's parameters that this device holds.
std::vector<HeldPart> held_parameters(ShardedEngine& engine);

}  // namespace shard
