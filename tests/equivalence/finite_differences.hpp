#pragma once

/// Gradients of an engine on one device, held against finite differences of the definition in float64.

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "engine/host_checkpoint.hpp"
#include "engine/workloads/random.hpp"
#include "engine/workloads/workload.hpp"
#include "tests/equivalence/equivalence.hpp"
#include "tests/harness/catch.hpp"

namespace shard::testing {

/// Uniform in ±most.
inline HostTensor random_tensor(const Shape& shape, const std::string& name, float most) {
  HostTensor t{shape, {}};
  const CounterRandom random(3, name);
  for (Index i = 0; i < num_elements(shape); ++i)
    t.values.push_back(most * (2 * random.uniform(static_cast<std::uint64_t>(i)) - 1));
  return t;
}

/// A network at a point, and the objective Σ loss · weight over its tokens.
struct AtPoint {
  std::map<std::string, HostTensor> weights;
  HostTensor input, dloss;

  explicit AtPoint(const Workload& network) : input(network.random_input(2, 5)) {
    for (const Parameter& p : network.parameters()) weights[p.name] = random_tensor(p.shape, p.name, 1);
    dloss = random_tensor(network.output_shape(2), "weight of each loss", 1);
  }
};

/// The objective by its definition, in float64.
template <class Definition>
double objective(Definition& at, const HostTensor& dloss) {
  const auto losses = at.forward();
  double sum = 0;
  for (std::size_t i = 0; i < dloss.values.size(); ++i) sum += losses.all[i].value() * dloss.values[i];
  return sum;
}

/// A derivative, and how far it may be from the true one.
struct Derivative {
  double value, error;
};

/// Two central differences, extrapolated to a step of 0 (Richardson). What is left of the error is below
/// their difference, unless a ReLU changes its side.
template <class Definition>
Derivative derivative_by(typename Definition::Number& weight, Definition& at, const HostTensor& dloss) {
  const double here = weight.value();
  auto central = [&](double step) {
    weight = here + step;
    const double above = objective(at, dloss);
    weight = here - step;
    const double slope = (above - objective(at, dloss)) / (2 * step);
    weight = here;
    return slope;
  };
  const double wide = central(0x1p-9), narrow = central(0x1p-10);
  return {(4 * narrow - wide) / 3, std::abs(wide - narrow)};
}

/// Checks every element of every gradient. `Reference` is that of sampled.hpp: with no samples, it is the
/// definition; with some, it says what float32 makes of it.
template <template <int> class Reference, class Model>
void check_gradients(ShardedEngine& engine, const Model& model, const AtPoint& point) {
  engine.load_checkpoint(*host_checkpoint(point.weights, "test"));
  const Results results = run_step(engine, point.input, point.dloss);
  Reference<16> bounds(model, point.weights, point.input);
  bounds.forward();
  const auto bounded = bounds.backward(point.dloss);
  CHECK(results.gradients.size() == point.weights.size());
  Reference<0> definition(model, point.weights, point.input);
  for (const auto& [name, gradient] : results.gradients) {
    const std::vector<float> given = gradient.local().to_host();
    auto& weights = definition.weight(name).all;
    REQUIRE(given.size() == weights.size());
    for (std::size_t i = 0; i < weights.size(); ++i) {
      CAPTURE(model.describe(), name, i);
      const Derivative expected = derivative_by(weights[i], definition, point.dloss);
      const double rounding = bounded.at(name).all[i].bound();
      CHECK(std::abs(given[i] - expected.value) <= expected.error + rounding);
      CHECK(expected.error + rounding < 1e-3);  // of gradients of about 1
    }
  }
}

}  // namespace shard::testing
