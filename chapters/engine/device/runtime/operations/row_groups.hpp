#pragma once

/// Rows to be added to other rows, grouped by their target row. So one thread of a kernel computes each
/// element's sum, always in the same order.

#include <span>
#include <vector>

#include "engine/device/operations.hpp"

namespace shard::runtime {

/// Rows order[begins[g]] to order[begins[g + 1] - 1], in ascending order, are added to row targets[g].
struct RowGroups {
  std::vector<Index> targets;  ///< ascending, without repetitions
  std::vector<Index> begins;   ///< has one entry more than targets
  std::vector<Index> order;

  /// Row i is added to row at[i], unless that is no_slot.
  explicit RowGroups(std::span<const Index> at);
};

}  // namespace shard::runtime
