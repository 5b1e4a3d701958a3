#pragma once

#include "engine/engines/optimizer.hpp"
#include "engine/program/commands.hpp"

namespace shard {

/// What is trained, how, and on which devices.
struct Run {
  Communicator& group;
  const Variant& variant;
  const Workload& network;
  const Arguments& arguments;
};

/// Runs forward, backward and the optimizer. Returns the time in milliseconds.
double training_step(const Run& run, ShardedEngine& engine, Optimizer& optimizer, TrainingBatch& batch);
/// Loads the initial values, or the checkpoint to resume. \throws Error file
void load_beginning(const Run& run, ShardedEngine& engine, Optimizer& optimizer);
/// The number of steps of the resumed checkpoint, else 0.
Index steps_before(const Run& run);
/// The optimizer that the command line names.
std::unique_ptr<Optimizer> optimizer_of(const Run& run);
/// The number of elements of state that this optimizer keeps for each element that it updates.
Index state_per_element(const Arguments& arguments);

}  // namespace shard
