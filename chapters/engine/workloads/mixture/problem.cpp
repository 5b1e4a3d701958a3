#include "engine/workloads/mixture/problem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "engine/proof/exact.hpp"
#include "engine/workloads/exact_values.hpp"

namespace shard {

namespace {

using exact::Matrix;

bool is_power_of_two(Index n) {
  return n > 0 && (n & (n - 1)) == 0;
}

}  // namespace

std::optional<ExactToken> exact_choice(const std::vector<double>& logits, Index top_k) {
  const double largest = *std::ranges::max_element(logits);
  const auto ties = std::ranges::count(logits, largest);
  const Index chosen_ties = std::min<Index>(ties, top_k);
  for (double z : logits)
    if (z != largest && largest - z < double{logit_step}) return std::nullopt;
  if (!is_power_of_two(ties) || ties > 8 || !is_power_of_two(chosen_ties)) return std::nullopt;
  ExactToken token;
  for (double z : logits) token.probabilities.push_back(z == largest ? 1.0 / static_cast<double>(ties) : 0.0);
  std::vector<Index> order(logits.size());
  std::iota(order.begin(), order.end(), Index{0});
  std::ranges::stable_sort(order, std::greater(),
                           [&](Index e) { return logits[static_cast<std::size_t>(e)]; });
  token.chosen.assign(order.begin(), order.begin() + top_k);
  const double of_tie = 1.0 / static_cast<double>(top_k == 1 ? ties : chosen_ties);
  for (Index e : token.chosen)
    token.gates.push_back(logits[static_cast<std::size_t>(e)] == largest ? of_tie : 0.0);
  return token;
}

namespace {

/// Marks the choices that find a slot: by rank first, then by token.
void keep_first(std::vector<ExactToken>& tokens, const RoutingRule& rule, Index experts) {
  const Index capacity = rule.capacity(static_cast<Index>(tokens.size()), experts);
  std::vector<Index> taken(static_cast<std::size_t>(experts));
  for (std::size_t r = 0; r < static_cast<std::size_t>(rule.top_k); ++r)
    for (ExactToken& token : tokens)
      token.is_kept.push_back(taken[static_cast<std::size_t>(token.chosen[r])]++ < capacity);
}

/// The counts of a batch that is divided over this number of devices.
RoutedCounts counted(const std::vector<ExactToken>& tokens, const Mixture& mixture, int devices) {
  const auto batch = static_cast<Index>(tokens.size());
  const Index k = mixture.rule().top_k, E = mixture.model().num_experts;
  RoutedCounts counts{devices, k, E, std::vector<Index>(static_cast<std::size_t>(devices * k * E)), {}};
  counts.kept = counts.chosen;
  for (int d = 0; d < devices; ++d)
    for (Index t = part(batch, devices, d).begin; t < part(batch, devices, d).end; ++t)
      for (Index r = 0; r < k; ++r) {
        const ExactToken& token = tokens[static_cast<std::size_t>(t)];
        const auto rank = static_cast<std::size_t>(r);
        const auto at = static_cast<std::size_t>((d * k + r) * E + token.chosen[rank]);
        ++counts.chosen[at];
        counts.kept[at] += token.is_kept[rank] ? 1 : 0;
      }
  return counts;
}

}  // namespace

std::vector<ExactToken> exact_choices(const ExactProblem& problem) {
  const MixtureModel& m = as_mixture(*problem.workload).model();
  const RoutingRule& rule = as_mixture(*problem.workload).rule();
  const Matrix logits = product(Matrix(problem.input), Matrix(problem.weights.at(router_name())));
  std::vector<ExactToken> tokens;
  for (Index t = 0; t < logits.rows; ++t) {
    auto row = logits.values.begin() + t * m.num_experts;
    std::optional<ExactToken> token = exact_choice({row, row + m.num_experts}, rule.top_k);
    if (!token)
      throw Error(Code::internal, fmt::format("exact mode: expected exact gates, given token {}", t));
    tokens.push_back(std::move(*token));
  }
  keep_first(tokens, rule, m.num_experts);
  return tokens;
}

RoutedCounts route_mixture(const ExactProblem& problem, int devices) {
  return counted(exact_choices(problem), as_mixture(*problem.workload), devices);
}

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
