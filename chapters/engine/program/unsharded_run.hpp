#pragma once

#include <optional>

#include "engine/program/training_step.hpp"
#include "engine/proof/loss_curve.hpp"

namespace shard {

/// Trains the unsharded network on the first ten batches of a run that has ended, and compares the losses
/// (loss_curve.hpp). A wrong update shows in the next loss; later losses add time, and rounding.
///
/// The first device trains the network as it is, and meanwhile the last one trains it with its weights moved in
/// each step. A collective. Device 0 returns the comparison; other devices, and a variant that has nothing to be
/// compared with, return nothing.
std::optional<CurveComparison> compare_with_unsharded(const Run& run, const LossCurve& trained);

/// The comparison of so many steps, which come after `before` others, in a line for people. It names a likely
/// cause where gradients are right in exact mode.
std::string describe(const std::optional<CurveComparison>& comparison, Index before, Index steps,
                     bool gradients_are_right);

}  // namespace shard
