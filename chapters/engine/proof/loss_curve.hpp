#pragma once

/// Whether a strategy trains as the unsharded network does: its losses, step by step.

#include <vector>

#include "engine/device/device.hpp"

namespace shard {

/// What a training run did in each step.
struct LossCurve {
  std::vector<double> losses;
  /// Choices that rounding may turn (Journal::decisions): how often each thing was chosen. Empty where there
  /// are none.
  std::vector<std::vector<Index>> decisions = {};
};

/// What a comparison of two curves showed.
struct CurveComparison {
  Index steps = 0;     ///< compared; fewer than were trained where rounding alone may change the loss by 1 %
  double largest = 0;  ///< relative difference
  double allowed = 0;  ///< the largest relative difference that rounding may make, of these steps
  Index wrong_step = 0;     ///< the first whose difference is larger than that; 0: there is none
  double expected = 0;      ///< the unsharded network's loss in that step
  double given = 0;         ///< this run's
  double allowed_then = 0;  ///< what rounding may make of it in that step, absolute

  bool is_good() const { return wrong_step == 0; }
  bool operator==(const CurveComparison&) const = default;
};

/// The relative error that rounding to float32 makes of a sum of so many products, whose signs are random:
/// sqrt(n) u with u = 2^-24, which it exceeds by a factor of 4 with a probability below 0.1 % (Higham and
/// Mary 2019, "A New Approach to Probabilistic Rounding Error Analysis", theorem 2.4: 2 exp(−4²/2)).
double rounding_of_sum(Index products);

/// Compares the losses of a run with those of the unsharded network, `reference`. `moved` is the unsharded
/// network once more, each of whose weights was moved, in each step, by the relative error `rounding`. So it
/// shows what such an error does to this curve, however well or badly conditioned the training is.
///
/// In step t, |loss − reference| may be 4 (rounding reference + m), where m is the largest difference between
/// `moved` and `reference` up to step t. The comparison ends before the step in which that is 1 % of the
/// reference. It also ends before a step in which one choice is another one, or as many as `moved` has
/// changed by then: the two networks differ from there on. More changed choices are a difference.
CurveComparison compare_curves(const LossCurve& run, const LossCurve& reference, const LossCurve& moved,
                               double rounding);

}  // namespace shard
