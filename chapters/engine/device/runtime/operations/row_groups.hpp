#pragma once

/// Rows that are to be added to other rows, grouped by the row that they are added to. So one thread of a
/// kernel adds all that meet in one element, and does so in the same order always.

#include <span>
#include <vector>

#include "engine/device/operations.hpp"

namespace shard::runtime {

/// Rows order[begins[g]] to below order[begins[g + 1]], ascending, are added to row targets[g].
struct RowGroups {
  std::vector<Index> targets;  ///< ascending, each once
  std::vector<Index> begins;   ///< one more than targets
  std::vector<Index> order;

  /// Row i is added to row at[i], unless that is no_slot.
  explicit RowGroups(std::span<const Index> at);
};

}  // namespace shard::runtime
