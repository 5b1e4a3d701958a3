#include "engine/workloads/exact_values.hpp"

#include <algorithm>
#include <cmath>

#include "engine/layers/tokens/tokens.hpp"

namespace shard::exact {

HostTensor integers(Shape shape, const CounterRandom& random, int low, int high, float scale) {
  HostTensor t{shape, {}};
  for (Index i = 0; i < num_elements(shape); ++i)
    t.values.push_back(scale * static_cast<float>(random.integer(static_cast<std::uint64_t>(i), low, high)));
  return t;
}

HostTensor sparse_signs(Shape shape, const CounterRandom& random) {
  HostTensor t{shape, std::vector<float>(static_cast<std::size_t>(num_elements(shape)))};
  for (Index column = 0; column < shape[1]; ++column)
    for (Index entry = 0; entry < 2; ++entry) {
      auto draw = static_cast<std::uint64_t>(4 * column + 2 * entry);
      Index row = random.integer(draw, 0, static_cast<int>(shape[0]) - 1);
      t.values[static_cast<std::size_t>(row * shape[1] + column)] =
          random.integer(draw + 1, 0, 1) == 0 ? -1.0F : 1.0F;
    }
  return t;
}

Arithmetic grid_of(Index model_dim, Index head_dim) {
  auto power = [](double size) { return static_cast<float>(std::exp2(-std::round(std::log2(size)))); };
  const double of_product = std::sqrt(5 * static_cast<double>(model_dim));  // x̂ w W, w and W of −2..2
  Arithmetic how;
  how.unit = 0x1p-3F, how.limit = 64, how.base = ExponentialBase::two;
  how.score_scale = power(of_product * of_product * std::sqrt(static_cast<double>(head_dim)) / 2);
  how.logit_scale = power(of_product / 2);
  return how;
}

float gradient_unit(const Arithmetic& how, Index model_dim, Index head_dim) {
  const Arithmetic grid = how.is_exact() ? how : grid_of(model_dim, head_dim);
  return grid.unit * grid.unit * std::min(grid.unit, grid.logit_scale);
}

ExactProblem transformer_problem(std::shared_ptr<const Workload> network, Index batch, std::uint64_t seed) {
  ExactProblem problem{network, network->random_input(batch, seed), {}, {}};
  problem.output_grad =
      integers(network->output_shape(batch), CounterRandom(seed, "exact output gradient"), -4, 4, 16);
  for (const Parameter& p : network->parameters()) {
    HostTensor& w = problem.weights[p.name] =
        integers(p.shape, CounterRandom(seed, "exact " + p.name), -2, 2);
    if (p.shape.size() == 1) std::ranges::replace(w.values, 0.0F, 1.0F);
  }
  return problem;
}

HostTensor random_tokens(Shape shape, Index labels, Index vocabulary, std::uint64_t seed) {
  HostTensor tokens{shape, {}};
  const CounterRandom ids(seed, "ids"), missing(seed, "missing labels");
  for (Index i = 0; i < num_elements(shape); ++i) {
    const auto at = static_cast<std::uint64_t>(i);
    const bool is_missing = i % shape[1] >= shape[1] - labels && missing.integer(at, 0, 9) == 0;
    const int token = is_missing ? Tokens::no_label : ids.integer(at, 0, static_cast<int>(vocabulary - 1));
    tokens.values.push_back(static_cast<float>(token));
  }
  return tokens;
}

}  // namespace shard::exact
