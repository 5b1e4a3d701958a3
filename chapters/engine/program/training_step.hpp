#pragma once

#include "engine/optimizer.hpp"
#include "engine/program/commands.hpp"

namespace shard {

/// What is trained, how, and on which devices.
struct Run {
  Communicator& group;
  const Variant& variant;
  const Workload& network;
  const Arguments& arguments;
};

/// Forward, backward and the optimizer; returns the time it took, in milliseconds.
double training_step(const Run& run, ShardedEngine& engine, Optimizer& optimizer, TrainingBatch& batch);
/// Loads what training begins with: initial values, or a checkpoint to go on from. \throws Error file
void load_beginning(const Run& run, ShardedEngine& engine, Optimizer& optimizer);
/// Steps that were made before.
Index steps_before(const Run& run);
/// The optimizer that the command line names.
std::unique_ptr<Optimizer> optimizer_of(const Run& run);
/// Its elements of state for each element that it updates.
Index state_per_element(const Arguments& arguments);

}  // namespace shard
