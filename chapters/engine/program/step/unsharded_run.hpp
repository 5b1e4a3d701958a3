#pragma once

#include <optional>
#include <string>

#include "engine/program/step/step.hpp"
#include "engine/proof/loss_curve.hpp"

namespace shard {

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

}  // namespace shard
