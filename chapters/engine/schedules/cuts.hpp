#pragma once

/// A list cut into contiguous parts: layers or blocks into stages.

#include <string>
#include <vector>

#include "engine/device/split.hpp"

namespace shard {

/// Cuts a list of costs into contiguous parts, none of them empty, so that the largest sum of a part is as
/// small as possible. Of several such cuts it takes the one whose first parts are largest.
std::vector<Range> cut_by_cost(const std::vector<Index>& costs, int parts);

/// Parts of the sizes in `text`, such as "3,1,1", which must add up to `size`. The error names the option, what
/// is cut ("layers"), and the words (`rules`) that the option takes instead of sizes. \throws Error usage
std::vector<Range> cut_by_list(const std::string& text, Index size, int parts, const std::string& what,
                               const std::string& option, const std::string& rules);

}  // namespace shard
