#include "engine/layers/mixture_of_experts.hpp"

#include <algorithm>
#include <numeric>

namespace shard {

ExpertChoice ExpertChoice::of_rows(Range rows) const {
  return {slice(gates, 0, rows.begin, rows.end),
          {experts.begin() + rows.begin * top_k(), experts.begin() + rows.end * top_k()},
          num_experts};
}

std::vector<Index> ExpertChoice::in_order() const {
  std::vector<Index> choices(experts.size());
  std::iota(choices.begin(), choices.end(), Index{0});
  std::ranges::stable_sort(choices, {}, [&](Index c) { return experts[static_cast<std::size_t>(c)]; });
  return choices;
}

std::vector<Index> ExpertChoice::slots() const {
  std::vector<Index> places(experts.size());
  Index place = 0;
  for (Index choice : in_order()) places[static_cast<std::size_t>(choice)] = place++;
  return places;
}

std::vector<Index> ExpertChoice::tokens_of(Index expert) const {
  std::vector<Index> tokens;
  for (std::size_t c = 0; c < experts.size(); ++c)
    if (experts[c] == expert) tokens.push_back(static_cast<Index>(c) / top_k());
  return tokens;
}

std::vector<Index> ExpertChoice::counts() const {
  std::vector<Index> chosen(static_cast<std::size_t>(num_experts));
  for (Index e : experts) ++chosen[static_cast<std::size_t>(e)];
  return chosen;
}

ExpertChoice choose_experts(Tensor logits, Index top_k, const Arithmetic& how, const SeeCounts& see_counts) {
  ExpertChoice choice;
  choice.num_experts = logits.extent(1);
  logits = how.exponents(scale(std::move(logits), how.logit_scale));
  const Later<std::vector<Index>> experts = shard::top_k(logits, top_k);
  if (see_counts) see_counts(top_k_counts(logits, top_k));
  choice.experts = experts;
  Tensor z = take_columns(logits, choice.experts, top_k);  // (T, k)
  const Tensor largest = row_max(z);
  Tensor powers = exponentials(std::move(z), largest, how.base);
  const Tensor sums = row_sums(powers);
  choice.gates = how.rounded(divide_rows(std::move(powers), sums));
  return choice;
}

Tensor choose_experts_backward(Tensor dgates, const ExpertChoice& choice, const Arithmetic& how) {
  Tensor d = how.rounded(softmax_backward(std::move(dgates), choice.gates));  // (T, k)
  return put_columns(scale(std::move(d), how.logit_scale), choice.experts, choice.num_experts);
}

}  // namespace shard
