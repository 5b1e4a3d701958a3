#pragma once

/// A list cut into contiguous parts: layers or blocks into stages.

#include <vector>

#include "engine/device/split.hpp"

namespace shard {

/// Cuts a list of costs into contiguous parts, none of them empty, so that the largest sum of a part is as
/// small as possible. Of several such cuts it takes the one whose first parts are largest.
std::vector<Range> cut_by_cost(const std::vector<Index>& costs, int parts);

/// Parts of these sizes, one behind the other.
std::vector<Range> parts_of_sizes(const std::vector<Index>& sizes);

}  // namespace shard
