#pragma once

/// Whether a strategy trains as the unsharded network does: its losses, step by step.

#include <vector>

#include "engine/device/device.hpp"

namespace shard {

/// The losses and choices of a training run, step by step.
struct LossCurve {
  std::vector<double> losses;
  /// Choices that rounding may change (Journal::decisions): how often each expert was chosen. Empty without
  /// choices.
  std::vector<std::vector<Index>> decisions = {};
};

/// The result of comparing two curves.
struct CurveComparison {
  Index steps = 0;          ///< compared: until rounding alone may change the loss by 1 %
  double largest = 0;       ///< relative difference
  double allowed = 0;       ///< the largest relative difference that rounding may cause in these steps
  Index wrong_step = 0;     ///< the first with a larger difference; 0: none
  double expected = 0;      ///< the unsharded network's loss in that step
  double given = 0;         ///< this run's
  double allowed_then = 0;  ///< the absolute difference that rounding may cause in that step

  bool is_good() const { return wrong_step == 0; }
  bool operator==(const CurveComparison&) const = default;
};

/// The relative error of rounding a sum of `products` products with random signs to float32: sqrt(n) u with u
/// = 2^-24. It is exceeded by a factor of 4 with a probability below 0.1 % (Higham and
/// Mary 2019, "A New Approach to Probabilistic Rounding Error Analysis", theorem 2.4: 2 exp(−4²/2)).
double rounding_of_sum(Index products);

/// Compares the losses of a run with those of the unsharded network, `reference`. `moved` has the losses of the
/// unsharded network if each step begins by changing each weight by the relative error `rounding`. So `moved`
/// shows how such errors change this curve.
///
/// In step t, |loss − reference| may be 4 (rounding reference + m), where m is the largest difference between
/// `moved` and `reference` up to step t. The comparison ends before the step in which this bound is 1 % of
/// the reference. It also ends before a step in which rounding may have changed choices: one, or at most as many
/// as in a step of `moved` so far. From then on the networks differ. More changed choices are a difference, and so
/// is a loss that is not finite, of the run or of the reference.
CurveComparison compare_curves(const LossCurve& run, const LossCurve& reference, const LossCurve& moved,
                               double rounding);

}  // namespace shard
