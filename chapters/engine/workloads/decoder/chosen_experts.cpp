#include "engine/workloads/decoder/chosen_experts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

namespace shard {

std::vector<Index> ChosenExperts::counts() const {
  std::vector<Index> counts(of_block.size() * static_cast<std::size_t>(experts));
  for (std::size_t block = 0; block < of_block.size(); ++block)
    for (Index expert : of_block[block])
      ++counts[block * static_cast<std::size_t>(experts) + static_cast<std::size_t>(expert)];
  return counts;
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
  const std::vector<Index> chosen = dynamic_cast<const ChosenExperts&>(*data).counts();
  if (chosen.empty()) return;
  const Index experts = network_.model().experts;
  RoutedCounts counts{1, 1, experts, std::vector<Index>(static_cast<std::size_t>(experts)), {}};
  for (std::size_t i = 0; i < chosen.size(); ++i) counts.chosen[i % counts.chosen.size()] += chosen[i];
  counts.kept = counts.chosen;  // experts have no capacity, so none is dropped
  balance_.add(counts);
  decisions_.push_back(chosen);
}

}  // namespace shard
