#include "engine/workloads/mixture/choices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "engine/proof/exact.hpp"
#include "engine/workloads/mixture/problem.hpp"

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

}  // namespace shard
