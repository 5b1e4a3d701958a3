#include "engine/layers/mixture_of_experts.hpp"

#include <algorithm>
#include <numeric>

#include "engine/device/books/memory.hpp"

namespace shard {

namespace {

/// Counts the choices, and sorts them in one pass.
ChoiceLists sorted(std::vector<Index> experts, Index top_k, Index num_experts) {
  ChoiceLists lists{.top_k = top_k};
  lists.counts.resize(static_cast<std::size_t>(num_experts));
  for (Index e : experts) ++lists.counts[static_cast<std::size_t>(e)];
  lists.first.resize(lists.counts.size());
  std::exclusive_scan(lists.counts.begin(), lists.counts.end(), lists.first.begin(), Index{0});
  std::vector<Index> in_order(experts.size()), tokens(experts.size()), slots(experts.size());
  std::vector<Index> next = lists.first;
  for (std::size_t c = 0; c < experts.size(); ++c) {
    const Index slot = next[static_cast<std::size_t>(experts[c])]++;
    in_order[static_cast<std::size_t>(slot)] = static_cast<Index>(c);
    tokens[static_cast<std::size_t>(slot)] = static_cast<Index>(c) / top_k;
    slots[c] = slot;
  }
  lists.experts = std::move(experts), lists.in_order = std::move(in_order);
  lists.tokens = std::move(tokens), lists.slots = std::move(slots);
  return lists;
}

}  // namespace

std::shared_ptr<const ChoiceLists> sorted_choices(std::vector<Index> experts, Index top_k,
                                                  Index num_experts) {
  auto make = [&] {
    return std::make_shared<const ChoiceLists>(sorted(std::move(experts), top_k, num_experts));
  };
  if (tensors_have_elements()) return make();
  static std::vector<std::weak_ptr<const ChoiceLists>> shared;  // by all devices, which are in one process
  std::erase_if(shared, [](const auto& lists) { return lists.expired(); });
  for (const auto& some : shared) {
    const std::shared_ptr<const ChoiceLists> lists = some.lock();
    if (std::ssize(lists->counts) == num_experts && lists->experts.size() == std::ssize(experts) &&
        lists->top_k == top_k && std::ranges::equal(lists->experts, experts))
      return lists;
  }
  shared.emplace_back();
  const std::shared_ptr<const ChoiceLists> made = make();
  shared.back() = made;
  return made;
}

ExpertChoice ExpertChoice::of_rows(Range rows) const {
  const Index* first = experts().begin();
  return {slice(gates, 0, rows.begin, rows.end), num_experts,
          sorted_choices({first + rows.begin * top_k(), first + rows.end * top_k()}, top_k(), num_experts)};
}

ExpertChoice choose_experts(Tensor logits, Index top_k, const Arithmetic& how, const SeeCounts& see_counts) {
  ExpertChoice choice;
  choice.num_experts = logits.extent(1);
  logits = how.exponents(scale(std::move(logits), how.logit_scale));
  const Later<std::vector<Index>> experts = shard::top_k(logits, top_k);
  if (see_counts) see_counts(top_k_counts(logits, top_k));
  choice.lists = sorted_choices(experts, top_k, choice.num_experts);
  Tensor z = take_columns(logits, choice.experts(), top_k);  // (T, k)
  const Tensor largest = row_max(z);
  Tensor powers = exponentials(std::move(z), largest, how.base);
  const Tensor sums = row_sums(powers);
  choice.gates = how.rounded(divide_rows(std::move(powers), sums));
  return choice;
}

Tensor choose_experts_backward(Tensor dgates, const ExpertChoice& choice, const Arithmetic& how) {
  Tensor d = how.rounded(softmax_backward(std::move(dgates), choice.gates));  // (T, k)
  return put_columns(scale(std::move(d), how.logit_scale), choice.experts(), choice.num_experts);
}

}  // namespace shard
