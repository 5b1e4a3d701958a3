#include "engine/workloads/chosen_experts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <sstream>

namespace shard {

std::vector<Index> ChosenExperts::counts(Index block, const std::vector<Index>& rows) const {
  const std::vector<Index>& chosen = of_block[static_cast<std::size_t>(block)];
  std::vector<Index> counts(static_cast<std::size_t>(experts));
  for (Index row : rows)
    for (Index r = 0; r < top_k; ++r)
      ++counts[static_cast<std::size_t>(chosen[static_cast<std::size_t>(row * top_k + r)])];
  return counts;
}

std::vector<Index> ChosenExperts::counts(Index block, Range rows) const {
  std::vector<Index> all(static_cast<std::size_t>(rows.size()));
  std::iota(all.begin(), all.end(), rows.begin);
  return counts(block, all);
}

std::vector<Index> ChosenExperts::of_all() const {
  std::vector<Index> all;
  for (std::size_t block = 0; block < of_block.size(); ++block) {
    const Index rows = static_cast<Index>(of_block[block].size()) / top_k;
    std::ranges::copy(counts(static_cast<Index>(block), Range{0, rows}), std::back_inserter(all));
  }
  return all;
}

ChosenExperts gathered_choices(const LanguageModel& engine, const DecoderModel& model, Index length) {
  std::string mine;  // block, row and experts of each choice
  for (const LanguageModel::NotedChoice& c : engine.chosen_experts())
    mine += fmt::format("{} {} {} ", c.block, c.sequence * length + c.position, fmt::join(c.experts, " "));
  ChosenExperts chosen(model.experts, model.top_k);
  for (const std::string& theirs : engine.group().gather_for_all("experts of tokens", mine)) {
    std::istringstream numbers(theirs);
    for (std::size_t block = 0, row = 0; numbers >> block >> row;) {
      chosen.of_block.resize(static_cast<std::size_t>(model.num_blocks));
      std::vector<Index>& of_block = chosen.of_block[block];
      const std::size_t k = static_cast<std::size_t>(model.top_k), first = row * k;
      of_block.resize(std::max(of_block.size(), first + k));
      for (std::size_t r = 0; r < k; ++r) numbers >> of_block[first + r];
    }
  }
  return chosen;
}

void ExpertJournal::add(const ShardedEngine& engine) {
  const auto data = network_.step_data(engine);
  const std::vector<Index> chosen = dynamic_cast<const ChosenExperts&>(*data).of_all();
  if (chosen.empty()) return;
  const Index experts = network_.model().experts;
  RoutedCounts counts{1, 1, experts, std::vector<Index>(static_cast<std::size_t>(experts)), {}};
  for (std::size_t i = 0; i < chosen.size(); ++i) counts.chosen[i % counts.chosen.size()] += chosen[i];
  counts.kept = counts.chosen;  // no expert is ever full
  balance_.add(counts);
  decisions_.push_back(chosen);
}

}  // namespace shard
