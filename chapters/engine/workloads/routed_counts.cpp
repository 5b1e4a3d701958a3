#include "engine/workloads/routed_counts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "engine/device/split.hpp"

namespace shard {

Index RoutedCounts::kept_from(int device, Index expert) const {
  Index sum = 0;
  for (Index r = 0; r < top_k; ++r) sum += at(kept, device, r, expert);
  return sum;
}

Index RoutedCounts::kept_for(Index expert) const {
  Index sum = 0;
  for (int d = 0; d < devices; ++d) sum += kept_from(d, expert);
  return sum;
}

Index RoutedCounts::chosen_for(Index expert) const {
  Index sum = 0;
  for (int d = 0; d < devices; ++d)
    for (Index r = 0; r < top_k; ++r) sum += at(chosen, d, r, expert);
  return sum;
}

void ExpertBalance::add(const RoutedCounts& counts) {
  devices_ = counts.devices;
  chosen_.resize(static_cast<std::size_t>(counts.num_experts));
  kept_.resize(chosen_.size());
  for (Index e = 0; e < counts.num_experts; ++e) {
    chosen_[static_cast<std::size_t>(e)] += counts.chosen_for(e);
    kept_[static_cast<std::size_t>(e)] += counts.kept_for(e);
  }
}

std::string ExpertBalance::describe() const {
  auto sum = [](const std::vector<Index>& counts, Index begin, Index end) {
    return static_cast<double>(std::accumulate(counts.begin() + begin, counts.begin() + end, Index{0}));
  };
  const auto num_experts = static_cast<Index>(chosen_.size());
  const double chosen = sum(chosen_, 0, num_experts);
  const double kept = sum(kept_, 0, num_experts);
  std::string text = "  choices for each expert, in %:";
  for (Index of_expert : chosen_)
    text += fmt::format(" {:.1f}", 100 * static_cast<double>(of_expert) / chosen);
  text += fmt::format("   (evenly: {:.1f})\n", 100.0 / static_cast<double>(num_experts));
  text += fmt::format("  dropped for want of capacity: {:.1f} % of the choices\n", 100 * (1 - kept / chosen));
  if (devices_ == 1 || kept == 0) return text;
  double busiest = 0;
  for (int d = 0; d < devices_; ++d) {
    Range mine = part(num_experts, devices_, d);
    busiest = std::max(busiest, sum(kept_, mine.begin, mine.end));
  }
  text += fmt::format("  the busiest device's experts did {:.2f} times the mean of all devices\n",
                      busiest * devices_ / kept);
  return text;
}

}  // namespace shard
