#pragma once

/// Training on random real numbers, and the expected results: those of the unsharded network, within rounding.

#include "engine/workloads/random.hpp"
#include "tests/equivalence/equivalence.hpp"
#include "tests/equivalence/rounding.hpp"

namespace shard::testing {

/// Uniform in ±most.
inline HostTensor random_tensor(const Shape& shape, const std::string& name, std::uint64_t seed,
                                float most = 1) {
  HostTensor t{shape, {}};
  const CounterRandom random(seed, name);
  for (Index i = 0; i < num_elements(shape); ++i)
    t.values.push_back(most * (2 * random.uniform(static_cast<std::uint64_t>(i)) - 1));
  return t;
}

struct RealProblem {
  const Workload& network;
  Tensors weights;
  HostTensor input, output_grad;

  /// The weights are initial values of training: in deep stacks, larger ones would overflow within a few steps.
  RealProblem(const Case& c, std::uint64_t seed)
      : network(*c.network),
        input(network.random_input(c.batch, seed)),
        output_grad(random_tensor(network.output_shape(c.batch), "output_grad", seed,
                                  1 / static_cast<float>(c.batch))) {
    const std::unique_ptr<Checkpoint> initial = generate_checkpoint(network.parameters(), seed);
    for (const std::string& name : initial->names())
      weights[name] = {initial->shape(name), initial->whole(name).to_host()};
  }
};

/// Makes steps of SGD. Returns the whole gradients of each step ("0 layer_0/weights"), and the output after it. A
/// collective.
inline Tensors sgd_steps(ShardedEngine& engine, const Tensors& weights, const HostTensor& input,
                         const HostTensor& output_grad, int steps) {
  auto whole = [&](Placed placed) -> HostTensor {
    const Tensor t = engine.whole(std::move(placed));
    return {t.shape(), t.to_host()};
  };
  engine.load_checkpoint(*host_checkpoint(weights, "test"));
  Sgd sgd(0x1p-5F);
  Tensors all;
  for (int step = 0; step < steps; ++step) {
    const std::string number = std::to_string(step) + " ";
    engine.want_input_grad(step == 0);  // the other steps as in training
    Results results = run_step(engine, input, output_grad);
    sgd.step(engine, results.gradients);
    for (auto& [name, gradient] : results.gradients) all[number + name] = whole(std::move(gradient));
    InferenceMode no_tape;
    all[number + "output"] = whole(engine.forward(input_of(engine, input)));
  }
  return all;
}

/// A problem, and the expected results of its steps.
struct RandomRun {
  RealProblem problem;
  /// Deep networks of tokens make one step: after more steps, the bounds would be too wide to notice a mistake.
  int steps = problem.network.kind().has_tokens() && problem.network.num_layers() > 2 ? 1 : 3;
  Bounded expected{};

  RandomRun(const Case& c, std::uint64_t seed) : problem(c, seed) {
    Tensors given = problem.weights;
    given["output_grad"] = problem.output_grad;
    if (!problem.network.kind().has_tokens()) given["input"] = problem.input;
    const std::unique_ptr<ShardedEngine> engine = problem.network.unsharded(group());
    expected =
        with_bounds(given, longest_sum(problem.network, problem.output_grad.shape[0]), [&](Tensors of) {
          const HostTensor output_grad = std::move(of.extract("output_grad").mapped());
          auto moved = of.extract("input");
          return sgd_steps(*engine, of, moved ? moved.mapped() : problem.input, output_grad, steps);
        });
  }
};

/// The run of the first seed for which rounding changes no choice of an expert and no sign before a ReLU: then all
/// bounds are small.
inline RandomRun random_run(const Case& c) {
  for (std::uint64_t seed = 7; seed < 70; ++seed)
    if (RandomRun run(c, seed); run.expected.widest() < 0x1p-7) return run;
  throw Error(Code::internal, c.describe() + ": expected results that rounding leaves alone, given none");
}

}  // namespace shard::testing
