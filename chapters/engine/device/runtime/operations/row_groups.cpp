#include "engine/device/runtime/operations/row_groups.hpp"

#include <algorithm>

namespace shard::runtime {

RowGroups::RowGroups(std::span<const Index> at) {
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

}  // namespace shard::runtime
