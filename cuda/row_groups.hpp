#pragma once

/// Rows that are to be added to other rows, grouped by the row that they are added to. So one thread of a
/// kernel adds all that meet in one element, and does so in the same order always.

#include <algorithm>
#include <span>
#include <vector>

#include "engine/device/operations.hpp"

namespace shard::cuda {

/// Rows order[begins[g]] to below order[begins[g + 1]], ascending, are added to row targets[g].
struct RowGroups {
  std::vector<Index> targets;  ///< ascending, each once
  std::vector<Index> begins;   ///< one more than targets
  std::vector<Index> order;

  /// Row i is added to row at[i], unless that is no_slot.
  explicit RowGroups(std::span<const Index> at) {
    for (std::size_t i = 0; i < at.size(); ++i)
      if (at[i] != no_slot) order.push_back(static_cast<Index>(i));
    auto target = [&](Index i) { return at[static_cast<std::size_t>(i)]; };
    std::ranges::stable_sort(order, {}, target);
    for (std::size_t k = 0; k < order.size(); ++k)
      if (k == 0 || target(order[k]) != targets.back()) {
        targets.push_back(target(order[k]));
        begins.push_back(static_cast<Index>(k));
      }
    begins.push_back(static_cast<Index>(order.size()));
  }
};

}  // namespace shard::cuda
