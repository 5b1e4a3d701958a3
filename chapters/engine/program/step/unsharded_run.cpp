#include "engine/program/step/unsharded_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/device/gathered.hpp"
#include "engine/workloads/random.hpp"

namespace shard {

namespace {

constexpr std::size_t most_steps = 10;  // to compare

/// Changes each weight by a relative error, up or down.
class Perturbation {
 public:
  Perturbation(double relative, std::uint64_t seed) : relative_(static_cast<float>(relative)), seed_(seed) {}

  /// Call before each step. The signs of the weights are drawn once. Each step draws one more sign, which
  /// multiplies all of them, since rounding errors of different steps are independent.
  void apply(ShardedEngine& engine, Index step) {
    const bool is_negated = CounterRandom(seed_, "turned").bits(static_cast<std::uint64_t>(step)) % 2 == 1;
    for (const Trainable& t : engine.trainable()) {
      const auto& [tensor, begin, end] = t.parameter;
      sgd_update(t.parameter, multiply(slice(*tensor, 0, begin, end), signs_of(t)),
                 is_negated ? -relative_ : relative_);
    }
  }

 private:
  /// 1 or −1 for each weight.
  const Tensor& signs_of(const Trainable& t) {
    auto [found, is_new] = signs_.try_emplace(t.name);
    if (is_new) {
      const CounterRandom random(seed_, "moved " + t.name);
      std::vector<float> signs(static_cast<std::size_t>(num_elements(t.parameter.shape())));
      for (std::size_t i = 0; i < signs.size(); ++i) signs[i] = random.uniform(i) < 0.5F ? 1.0F : -1.0F;
      found->second = Tensor::from_host(t.parameter.shape(), signs);
    }
    return found->second;
  }

  float relative_;
  std::uint64_t seed_;
  std::map<std::string, Tensor> signs_;
};

/// The number of products in the longest chain of sums of a step: each layer, forward and backward, and the
/// rows that are added up for its gradient.
Index longest_sum(const Run& run) {
  Index widest = 0;
  for (const Parameter& p : run.network.parameters())
    widest = std::max(widest, std::accumulate(p.shape.begin(), p.shape.end(), Index{0}));
  return run.network.num_layers() * widest + run.network.output_shape(run.training.batch)[0];
}

/// The relative error of each weight in a step. Sums have the relative error d. Where products round their
/// operands to a unit u, an operand with the error d rounds to the other neighbour with a probability of d /
/// 2u, and then differs by 2u: a root mean square of sqrt(2 d u).
double rounding_of_step(const Run& run) {
  const double of_sums = rounding_of_sum(longest_sum(run));
  if (precision() == Precision::float32) return of_sums;
  const double unit = precision() == Precision::tf32 ? 0x1p-11 : 0x1p-8;
  return std::sqrt(2 * of_sums * unit);
}

/// Trains the unsharded network for `steps` steps on this device alone. If `change` is given, it changes
/// the weights before each step.
LossCurve train_alone(const Run& alone, std::size_t steps, Perturbation* change) {
  LossCurve curve;
  std::unique_ptr<ShardedEngine> engine = alone.network.unsharded(alone.group);
  if (!engine) return curve;
  std::unique_ptr<Optimizer> optimizer = optimizer_of(alone);
  load_beginning(alone, *engine, *optimizer);
  Journal journal;
  while (curve.losses.size() < steps) {
    const Index step = steps_before(alone) + static_cast<Index>(curve.losses.size()) + 1;
    if (change) change->apply(*engine, step);
    const auto batch = alone.network.batch(alone.training.batch, alone.training.seed, step);
    training_step(alone, *engine, *optimizer, *batch);
    if (const RoutedNetwork* routed = alone.network.routed()) routed->note(*engine, journal);
    curve.losses.push_back(batch->loss(alone.group));
  }
  curve.decisions = journal.decisions();
  return curve;
}

}  // namespace

std::optional<CurveComparison> compare_with_unsharded(const Run& run, const LossCurve& trained) {
  const int me = run.group.device_id(), last = run.group.num_devices() - 1;
  const std::size_t steps = std::min(trained.losses.size(), most_steps);
  const double rounding = rounding_of_step(run);
  const bool takes_part = me == 0 || me == last;
  const std::unique_ptr<Communicator> alone =
      run.group.split(takes_part ? std::optional<Index>(me) : std::nullopt, 0);
  LossCurve reference, moved;
  if (takes_part) {
    const Run mine{*alone, run.variant, run.network, run.options, run.training};
    Perturbation perturbation(rounding, run.training.seed);
    if (me == 0) reference = train_alone(mine, steps, nullptr);
    if (me == last) moved = train_alone(mine, steps, &perturbation);
  }
  const auto all =
      gather(run.group, "the unsharded network's losses", std::pair(moved.losses, moved.decisions));
  if (me != 0 || reference.losses.empty()) return std::nullopt;
  return compare_curves(trained, reference, {all.back().first, all.back().second}, rounding);
}

std::string describe(const std::optional<CurveComparison>& comparison, Index before, Index steps,
                     bool gradients_are_right) {
  if (!comparison) return "loss curve: there is no unsharded network to hold it against";
  const CurveComparison& c = *comparison;
  if (!c.is_good())
    return fmt::format(
        "loss curve: step {}: expected {:.7g}, the unsharded network's loss, given {:.7g}; rounding may make "
        "a difference of {:.1e}{}",
        before + c.wrong_step, c.expected, c.given, c.allowed_then,
        gradients_are_right && c.wrong_step == 2
            ? "; after the first update: weights not updated, or not gathered after it? Or another mean in "
              "the loss's gradient?"
            : "");
  const std::string where = c.steps == steps ? fmt::format("{} steps", steps)
                                             : fmt::format("the first {} of {} steps", c.steps, steps);
  return fmt::format(
      "loss curve: the unsharded network's; largest relative difference {:.1e}, rounding allows {:.1e} ({})",
      c.largest, c.allowed, where);
}

}  // namespace shard
