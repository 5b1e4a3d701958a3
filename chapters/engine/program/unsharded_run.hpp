#pragma once

#include <optional>

#include "engine/program/training_step.hpp"
#include "engine/proof/loss_curve.hpp"

namespace shard {

/// Trains the unsharded network on the batches of a run that has ended, and compares the losses
/// (loss_curve.hpp).
///
/// The first device trains it as it is, and meanwhile the last one trains it with its weights moved in each
/// step. So it takes as long as the same number of steps on one device (`./chapters/run 01 train` tells how
/// long), and on one device twice that. A collective. Device 0 returns the comparison; other devices, and a
/// variant that has nothing to be compared with, return nothing.
std::optional<CurveComparison> compare_with_unsharded(const Run& run, const Chapter& chapter,
                                                      const LossCurve& trained);

/// The comparison of so many steps, which come after `before` others, in a line for people. It names a likely
/// cause where gradients are right in exact mode.
std::string describe(const std::optional<CurveComparison>& comparison, Index before, Index steps,
                     bool gradients_are_right);

}  // namespace shard
