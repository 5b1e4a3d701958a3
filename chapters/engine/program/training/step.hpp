#pragma once

/// A training run: its step, and what is checked before, in and after it.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/engines/optimizer.hpp"
#include "engine/program/commands.hpp"
#include "engine/program/report.hpp"
#include "engine/proof/loss_curve.hpp"

namespace shard {

/// What is trained, how, and on which devices.
struct Run {
  Communicator& group;
  const Variant& variant;
  const Workload& network;
  const Arguments& arguments;
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
Index state_per_element(const Arguments& arguments);

/// Runs one step of an exact problem with dL/dx and, if nothing differs, one without it, as in training.
/// Returns the largest difference of any result from the unsharded network's, in ulp, over all devices.
/// Device 0 prints one difference of at most two devices. A collective.
Index exact_difference(const Run& run);

/// Checks, before training allocates anything, whether this host has the memory that its devices need at
/// least. Even a list of the parameters may be too large. \throws Error missing, with both numbers
/// @{
/// The parameters, their gradients and the optimizer's state, and the copies of exact mode.
void require_room_for_parameters(const Communicator& group, const Workload& network,
                                 const Arguments& arguments);
/// A step: its closed form. Without a form, the least that all devices together hold: parameters, gradients,
/// state, and what the backward pass needs of the forward pass. A collective.
void require_room_for_step(Communicator& group, const Variant& variant, const Workload& network,
                           const ShardedEngine& engine, const Arguments& arguments);
/// @}

/// Trains the unsharded network on the first ten batches of a finished run, and compares the losses
/// (loss_curve.hpp). A wrong update changes the next loss, so more steps only add time and rounding.
///
/// Device 0 trains the network as it is, and at the same time the last device trains it with changed weights
/// in each step. A collective. Device 0 returns the comparison. Other devices, and a variant without an
/// unsharded network, return nothing.
std::optional<CurveComparison> compare_with_unsharded(const Run& run, const LossCurve& trained);

/// A line about the comparison of `steps` steps that come after `before` other steps. It names a likely cause
/// if gradients are right in exact mode.
std::string describe(const std::optional<CurveComparison>& comparison, Index before, Index steps,
                     bool gradients_are_right);

/// A figure of the ledger with its closed form, if it has one. It keeps the first step in which the two
/// differ, or else the step in which the figure is largest.
struct WorstStep {
  Index measured = 0;
  Index formula = 0;
  Index step = 0;
  std::string why = {};  ///< why the two differ

  /// `explain` is called where the two differ.
  void add(Index step_now, Index measured_now, std::optional<Index> formula_now,
           const std::function<std::string()>& explain);
};

/// What one device sends, computes and holds in its steps, compared with the closed forms.
class StepFigures {
 public:
  /// Called after each step, counted from 1. The ledger was reset before the step.
  void add(const Run& run, const ShardedEngine& engine, const Optimizer& optimizer, Index step);
  /// Operations of this device in all steps.
  Index all_flops() const { return all_flops_; }
  /// Writes every device's figures into the report. A collective.
  void gather_into(Report& report, const Run& run) const;
  /// A line, on device 0, for each figure of a device that differs from its closed form: "device 1, step 2:
  /// operations: measured 81,920, formula 262,144". It also says which collective sent the bytes, or at which line
  /// the most bytes were held. A collective.
  std::vector<std::string> misses(const Run& run) const;

 private:
  WorstStep bytes_, messages_, flops_, peak_;
  std::map<std::string, Traffic> along_;  // by axes of a mesh; the step that sends most
  Index all_flops_ = 0;
};

/// The records that a checkpoint needs so that the run can resume after this step.
Records records_of(const Run& run, Index step);

}  // namespace shard
