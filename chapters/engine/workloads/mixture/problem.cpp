#include "engine/workloads/mixture/problem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "engine/proof/exact.hpp"
#include "engine/workloads/exact_values.hpp"
#include "engine/workloads/mixture/choices.hpp"

namespace shard {

namespace {

using exact::Matrix;

/// A router with elements −128, 0 or 128. Experts form groups of 1, 2, 4, 1, ... The experts of a group have
/// equal columns, so their logits are equal.
HostTensor tied_router(const MixtureModel& m, const CounterRandom& random) {
  std::vector<Index> experts(static_cast<std::size_t>(m.num_experts));
  std::iota(experts.begin(), experts.end(), Index{0});
  std::ranges::sort(experts, {}, [&](Index e) { return random.bits(static_cast<std::uint64_t>(e)); });
  HostTensor router{{m.model_dim, m.num_experts},
                    std::vector<float>(static_cast<std::size_t>(m.model_dim * m.num_experts))};
  std::uint64_t draw = static_cast<std::uint64_t>(m.num_experts);
  std::size_t group = 1;
  for (std::size_t begin = 0; begin < experts.size(); begin += group, group = group == 4 ? 1 : 2 * group)
    for (Index row = 0; row < m.model_dim; ++row) {
      auto value = logit_step * static_cast<float>(random.integer(draw++, -1, 1));
      for (std::size_t i = begin; i < std::min(begin + group, experts.size()); ++i)
        router.values[static_cast<std::size_t>(row * m.num_experts + experts[i])] = value;
    }
  return router;
}

/// Random rows with exact gates. Of several rows, the last is all zeros if its gates are exact: there, every
/// ReLU has its kink. Nothing if no rows are found.
std::optional<HostTensor> input_for(const HostTensor& router, Index top_k, Index batch,
                                    const CounterRandom& random, const Digits* digits) {
  const Index width = router.shape[0];
  auto has_exact_gates = [&](const std::vector<float>& row) {
    const Matrix logits = product(Matrix({{1, width}, row}), Matrix(router));
    return exact_choice(logits.values, top_k).has_value();
  };
  HostTensor input{{batch, width}, {}};
  std::uint64_t draw = 0;
  for (Index i = 0; i < batch; ++i) {
    std::vector<float> row(static_cast<std::size_t>(width));
    bool is_good = i > 0 && i == batch - 1 && has_exact_gates(row);
    for (int attempt = 0; !is_good && attempt < 64; ++attempt) {
      Index digit = digits == nullptr ? 0 : random.integer(draw++, 0, static_cast<int>(digits->size()) - 1);
      for (Index c = 0; c < width; ++c)
        row[static_cast<std::size_t>(c)] =
            static_cast<float>(digits == nullptr ? random.integer(draw++, 0, 3) : digits->pixel(digit, c));
      is_good = has_exact_gates(row);
    }
    if (!is_good) return std::nullopt;
    input.values.insert(input.values.end(), row.begin(), row.end());
  }
  return input;
}

}  // namespace

ExactProblem make_exact_mixture(const Mixture& mixture, Index batch, std::uint64_t seed,
                                const Digits* digits) {
  const MixtureModel& model = mixture.model();
  RoutingRule rule = mixture.rule();
  rule.skew = 0;
  if (rule.aux_weight != 0)  // w E count / (k B²) is then count
    rule.aux_weight =
        static_cast<double>(rule.top_k * batch * batch) / static_cast<double>(model.num_experts);
  ExactProblem problem;
  problem.workload = std::make_shared<Mixture>(model, rule);
  // Gates are at least 1/4, so experts' gradients, and weights after integer steps, are integers.
  problem.output_grad = exact::integers({batch, model.width(model.num_layers)},
                                        CounterRandom(seed, "exact output gradient"), -2, 2, 4);
  const bool is_sparse = model.num_layers > 2 || model.model_dim > 16;
  for (Index e = 0; e < model.num_experts; ++e)
    for (Index l = 0; l < model.num_layers; ++l) {
      const std::string name = expert_layer_name(e, l);
      CounterRandom random(seed, "exact " + name);
      problem.weights[name] = is_sparse ? exact::sparse_signs(model.shape(l), random)
                                        : exact::integers(model.shape(l), random, -2, 2);
    }
  for (std::uint64_t attempt = 0; attempt < 256; ++attempt) {
    CounterRandom random(seed, fmt::format("exact routing {}", attempt));
    HostTensor router = tied_router(model, random);
    std::optional<HostTensor> input =
        input_for(router, rule.top_k, batch, CounterRandom(seed + attempt, "exact input"), digits);
    if (!input) continue;
    problem.weights[router_name()] = std::move(router);
    problem.input = std::move(*input);
    return problem;
  }
  throw Error(Code::internal, "exact mode: expected a router with exact gates among 256, given none");
}

}  // namespace shard
