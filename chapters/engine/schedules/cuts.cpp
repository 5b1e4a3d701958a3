#include "engine/schedules/cuts.hpp"

#include <numeric>

namespace shard {

namespace {

/// Parts of at most `most` each, as many as it takes, the first ones as large as they can be while one index
/// is left for each part behind them; empty if `parts` do not suffice.
std::vector<Range> cut_within(const std::vector<Index>& costs, int parts, Index most) {
  const auto size = static_cast<Index>(costs.size());
  std::vector<Range> cut;
  Index begin = 0;
  for (int p = 0; p < parts; ++p) {
    Index end = begin;
    for (Index sum = 0; end < size - (parts - 1 - p); ++end) {
      sum += costs[static_cast<std::size_t>(end)];
      if (sum > most) break;
    }
    if (end == begin) return {};
    cut.push_back({begin, end});
    begin = end;
  }
  return begin == size ? cut : std::vector<Range>();
}

}  // namespace

std::vector<Range> cut_by_cost(const std::vector<Index>& costs, int parts) {
  Index low = 0;
  Index high = std::accumulate(costs.begin(), costs.end(), Index{0});
  while (low < high) {  // the smallest limit that suffices
    const Index middle = low + (high - low) / 2;
    if (cut_within(costs, parts, middle).empty())
      low = middle + 1;
    else
      high = middle;
  }
  return cut_within(costs, parts, low);
}

std::vector<Range> parts_of_sizes(const std::vector<Index>& sizes) {
  std::vector<Range> parts;
  Index begin = 0;
  for (Index size : sizes) {
    parts.push_back({begin, begin + size});
    begin += size;
  }
  return parts;
}

}  // namespace shard
