#include "engine/proof/loss_curve.hpp"

#include <algorithm>
#include <cmath>

#include "engine/basics/options.hpp"

namespace shard {

namespace {

constexpr double standard_deviations = 4;
constexpr double too_much = 0.01;  // of the loss; a larger bound would hide mistakes

/// The number of choices of a step that differ.
Index changed_choices(const LossCurve& a, const LossCurve& b, std::size_t step) {
  if (step >= a.decisions.size() || step >= b.decisions.size()) return 0;
  Index more = 0;
  for (std::size_t i = 0; i < std::min(a.decisions[step].size(), b.decisions[step].size()); ++i)
    more += std::max<Index>(a.decisions[step][i] - b.decisions[step][i], 0);
  return more;
}

}  // namespace

double rounding_of_sum(Index products) {
  return std::sqrt(static_cast<double>(products)) * 0x1p-24;
}

CurveComparison compare_curves(const LossCurve& run, const LossCurve& reference, const LossCurve& moved,
                               double rounding) {
  CurveComparison result;
  double largest_move = 0;
  Index most_changed = 1;
  const std::size_t steps = std::min({run.losses.size(), reference.losses.size(), moved.losses.size()});
  for (std::size_t step = 0; step < steps; ++step) {
    const double expected = reference.losses[step], given = run.losses[step];
    largest_move = std::max(largest_move, std::abs(moved.losses[step] - expected));
    most_changed = std::max(most_changed, changed_choices(moved, reference, step));
    const Index changed = changed_choices(run, reference, step);
    const double allowed = standard_deviations * (rounding * std::abs(expected) + largest_move);
    const bool is_known = std::isfinite(moved.losses[step]) && allowed < too_much * std::abs(expected);
    const double difference = std::abs(given - expected);
    const bool is_number = std::isfinite(difference);
    if (is_number && (!is_known || (changed > 0 && changed <= most_changed))) break;
    result.steps = static_cast<Index>(step) + 1;
    if (is_number) result.largest = std::max(result.largest, difference / std::abs(expected));
    result.allowed = std::max(result.allowed, allowed / std::abs(expected));
    if (is_number && difference <= allowed && changed == 0) continue;
    result.wrong_step = static_cast<Index>(step) + 1;
    result.expected = expected;
    result.given = given;
    result.allowed_then = allowed;
    break;
  }
  return result;
}

}  // namespace shard
