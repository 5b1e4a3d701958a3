#pragma once

/// The independent float64 reference of each workload, with a bound on what float32 may make of it.

#include "engine/workloads/decoder.hpp"
#include "engine/workloads/mixture.hpp"
#include "engine/workloads/mlp.hpp"
#include "engine/workloads/t5.hpp"
#include "tests/equivalence/decoder_reference.hpp"
#include "tests/equivalence/mixture_reference.hpp"
#include "tests/equivalence/reference.hpp"
#include "tests/equivalence/t5_reference.hpp"

namespace shard::testing {

/// What is trained, and with which gradients of its output.
struct RealProblem {
  const Workload& network;
  std::map<std::string, HostTensor> weights;
  HostTensor input, output_grad;
};

/// What should come of steps of SGD.
struct BoundedSteps {
  std::vector<std::map<std::string, Bounded>> results;  // of each: "output", each gradient, "input_grad"
  std::vector<Bounded> outputs;                         // after each
};

/// "output", "input_grad" and each parameter's gradient. \throws Error internal for a workload without one
inline std::map<std::string, Bounded> solve_bounded(const Workload& network,
                                                    const std::map<std::string, Bounded>& weights,
                                                    const Bounded& input, const Bounded& output_grad) {
  if (const auto* mlp = dynamic_cast<const Mlp*>(&network))
    return solve_bounded(mlp->model(), weights, input, output_grad);
  const Mixture& mixture = as_mixture(network);
  return solve_bounded_mixture(mixture.model(), mixture.rule(), weights, input, output_grad);
}

template <class Number>
Bounded bounded(const Numbers<Number>& m) {
  Bounded b(m.rows, m.columns);
  for (std::size_t i = 0; i < m.all.size(); ++i) b.value[i] = m.all[i].value(), b.error[i] = m.all[i].bound();
  return b;
}

/// A deep network takes one step: with more, there is not much left that a bound could notice.
template <class Reference>
BoundedSteps sampled_steps(const RealProblem& p, Reference network, double rate) {
  const int steps = p.network.num_layers() > 2 ? 1 : 3;
  BoundedSteps all;
  auto output = network.forward();
  for (int step = 0; step < steps; ++step) {
    const auto gradients = network.backward(p.output_grad);
    std::map<std::string, Bounded>& results = all.results.emplace_back();
    results.emplace("output", bounded(output));
    for (const auto& [name, gradient] : gradients) results.emplace(name, bounded(gradient));
    network.sgd_step(gradients, rate);
    output = network.forward();
    all.outputs.push_back(bounded(output));
  }
  for (const auto& margin : network.margins())
    if (margin.value() <= margin.bound()) throw DoubtfulChoice();
  return all;
}

/// The first steps of SGD. \throws DoubtfulChoice
inline BoundedSteps bounded_steps(const RealProblem& p, double rate) {
  if (const auto* decoder = dynamic_cast<const Decoder*>(&p.network))
    return sampled_steps(p, SampledDecoder<16>(decoder->model(), p.weights, p.input), rate);
  if (const auto* both = dynamic_cast<const T5*>(&p.network))
    return sampled_steps(p, SampledT5<16>(both->model(), p.weights, p.input), rate);
  std::map<std::string, Bounded> weights;
  for (const auto& [name, w] : p.weights) weights.emplace(name, w);
  auto solve = [&] { return solve_bounded(p.network, weights, Bounded(p.input), Bounded(p.output_grad)); };
  BoundedSteps all;
  std::map<std::string, Bounded> results = solve();
  for (int step = 0; step < 3; ++step) {
    for (auto& [name, w] : weights) sgd_step(w, results.at(name), rate);
    all.results.push_back(std::move(results));
    results = solve();
    all.outputs.push_back(results.at("output"));
  }
  return all;
}

}  // namespace shard::testing
