#include "engine/schedules/cuts.hpp"

#include <fmt/format.h>

#include <numeric>

#include "engine/basics/options.hpp"
#include "engine/device/error.hpp"

namespace shard {

namespace {

/// Cuts the list into parts with sums of at most `most`, the first ones as large as possible. Empty if this fails.
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
  while (low < high) {  // finds the smallest limit
    const Index middle = low + (high - low) / 2;
    if (cut_within(costs, parts, middle).empty())
      low = middle + 1;
    else
      high = middle;
  }
  return cut_within(costs, parts, low);
}

std::vector<Range> cut_by_list(const std::string& text, Index size, int parts, const std::string& what,
                               const std::string& option, const std::string& rules) {
  auto refuse_list = [&](const std::string& expected) {
    throw Error(Code::usage, "{}: expected {}, given {}", option, expected, text);
  };
  const auto sizes = numbers_in(text, [](Index n) { return n >= 1 && n <= Index{1} << 30; });
  if (!sizes) refuse_list(fmt::format("{} or numbers of {} separated by commas", rules, what));
  if (std::ssize(*sizes) != parts || std::accumulate(sizes->begin(), sizes->end(), Index{0}) != size)
    refuse_list(fmt::format("{} numbers, one a stage, that add up to {} {}", parts, size, what));
  std::vector<Range> cut;
  Index begin = 0;
  for (Index part_size : *sizes) {
    cut.push_back({begin, begin + part_size});
    begin += part_size;
  }
  return cut;
}

}  // namespace shard
