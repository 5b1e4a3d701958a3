#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "engine/checkpoints/manifest.hpp"
#include "engine/engines/optimizer.hpp"
#include "engine/program/registry.hpp"

namespace shard {

/// How a network is trained.
struct Training {
  Index batch = 64;
  Index steps = 200;
  std::uint64_t seed = 0;
  std::string optimizer = "adam";
  float learning_rate = 3e-3F;
  std::optional<double> clip_norm = {};
  std::string resume = {};                       ///< the folder of the checkpoint to resume
  std::shared_ptr<const Manifest> resumed = {};  ///< the manifest of that checkpoint
};

/// What is trained, how, and on which devices.
struct Run {
  Communicator& group;
  const Variant& variant;
  const Workload& network;
  const Options& options;  ///< of the variant
  const Training& training;
};

/// The gradients of a batch. Observers hear which part of the step each event belongs to.
Gradients gradients_of_batch(ShardedEngine& engine, Tensor input, const LossGradient& loss_gradient);
/// Tells observers the names of the parameters.
void note_parameters(ShardedEngine& engine);
/// Runs forward, backward and the optimizer. Returns the time in milliseconds.
double training_step(const Run& run, ShardedEngine& engine, Optimizer& optimizer, TrainingBatch& batch);
/// Loads the initial values, or the checkpoint to resume. \throws Error file
void load_beginning(const Run& run, ShardedEngine& engine, Optimizer& optimizer);
/// The number of steps of the resumed checkpoint, else 0.
Index steps_before(const Run& run);
/// The optimizer that the command line names.
std::unique_ptr<Optimizer> optimizer_of(const Run& run);
/// The number of elements of state that this optimizer keeps for each element that it updates.
Index state_per_element(const Training& training);

}  // namespace shard
