#pragma once

/// A run on random numbers, and what should come of it by an independent reference, with bounds.

#include "engine/workloads/random.hpp"
#include "tests/equivalence/bounded_solution.hpp"
#include "tests/equivalence/equivalence.hpp"

namespace shard::testing {

/// Uniform in ±most.
inline HostTensor random_tensor(Shape shape, const std::string& name, std::uint64_t seed, float most = 1) {
  HostTensor t{shape, {}};
  CounterRandom random(seed, name);
  for (Index i = 0; i < num_elements(shape); ++i)
    t.values.push_back(most * (2 * random.uniform(static_cast<std::uint64_t>(i)) - 1));
  return t;
}

/// Initial weights as for training: deep stacks of larger ones would leave the range of float32 within a few
/// steps.
inline std::map<std::string, HostTensor> random_weights(const Workload& network, std::uint64_t seed) {
  std::map<std::string, HostTensor> weights;
  std::unique_ptr<Checkpoint> initial = generate_checkpoint(network.parameters(), seed);
  for (const std::string& name : initial->names())
    weights[name] = {initial->shape(name), initial->whole(name).to_host()};
  return weights;
}

/// Steps of SGD on random data, and what should come of them, with bounds, by the independent reference.
struct RandomRun {
  static constexpr float rate = 0x1p-5F;
  RealProblem problem;
  BoundedSteps expected;

  RandomRun(const Case& c, std::uint64_t seed)
      : problem{*c.network, random_weights(*c.network, seed), c.network->random_input(c.batch, seed),
                random_tensor(c.network->output_shape(c.batch), "output_grad", seed,
                              1 / static_cast<float>(c.batch))},
        expected(bounded_steps(problem, rate)) {}
};

/// The first of some seeds whose data leave no doubt, in any step, about what rounding may not decide.
inline RandomRun random_run(const Case& c) {
  for (std::uint64_t seed = 7;; ++seed) {
    try {
      return RandomRun(c, seed);
    } catch (const DoubtfulChoice&) {
      if (seed == 70) throw;
    }
  }
}

}  // namespace shard::testing
