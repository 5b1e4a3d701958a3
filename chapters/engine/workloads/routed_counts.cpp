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

RoutedCounts RoutedCounts::of_devices(int begin, int count) const {
  auto of = [&](const std::vector<Index>& all) {
    const Index of_one = top_k * num_experts;
    return std::vector<Index>(all.begin() + begin * of_one, all.begin() + (begin + count) * of_one);
  };
  return {count, top_k, num_experts, of(chosen), of(kept)};
}

namespace {

double sum(const std::vector<Index>& counts, Range of) {
  return static_cast<double>(std::accumulate(counts.begin() + of.begin, counts.begin() + of.end, Index{0}));
}
double sum(const std::vector<Index>& counts) {
  return sum(counts, {0, static_cast<Index>(counts.size())});
}

}  // namespace

void ExpertBalance::add(const RoutedCounts& counts, int copies) {
  devices_ = counts.devices;
  chosen_.resize(static_cast<std::size_t>(counts.num_experts));
  kept_.resize(static_cast<std::size_t>(copies), std::vector<Index>(chosen_.size()));
  for (Index e = 0; e < counts.num_experts; ++e) {
    chosen_[static_cast<std::size_t>(e)] += counts.chosen_for(e);
    for (int d = 0; d < devices_; ++d)
      kept_[static_cast<std::size_t>(d / (devices_ / copies))][static_cast<std::size_t>(e)] +=
          counts.kept_from(d, e);
  }
}

double ExpertBalance::busiest() const {
  const int of_copy = devices_ / static_cast<int>(kept_.size());
  double most = 0;
  for (const std::vector<Index>& kept : kept_)
    for (int d = 0; d < of_copy; ++d)
      most = std::max(most, sum(kept, part(static_cast<Index>(kept.size()), of_copy, d)));
  return most;
}

std::string ExpertBalance::describe() const {
  const double chosen = sum(chosen_);
  double kept = 0;
  for (const std::vector<Index>& of_copy : kept_) kept += sum(of_copy);
  std::string text = "  choices for each expert, in %:";
  for (Index of_expert : chosen_)
    text += fmt::format(" {:.1f}", 100 * static_cast<double>(of_expert) / chosen);
  text += fmt::format("   (evenly: {:.1f})\n", 100.0 / static_cast<double>(chosen_.size()));
  text += fmt::format("  dropped for want of capacity: {:.1f} % of the choices\n", 100 * (1 - kept / chosen));
  if (devices_ == 1 || kept == 0) return text;
  text += fmt::format("  the busiest device's experts did {:.2f} times the mean of all devices\n",
                      busiest() * devices_ / kept);
  return text;
}

}  // namespace shard
