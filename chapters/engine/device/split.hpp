#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <vector>

namespace shard {

using Index = std::int64_t;

/// Indices [begin, end) of an axis.
struct Range {
  Index begin = 0;
  Index end = 0;

  Index size() const { return end - begin; }
  auto operator<=>(const Range&) const = default;
};

/// A part of a tensor: a range of indices for each dimension.
using Ranges = std::vector<Range>;

/// The k-th of `parts` contiguous parts of [0, size): the first `size mod parts` of them get one more.
/// A part may be empty. Batches, widths, parameters and the chunks of a ring are all cut by this rule.
inline Range part(Index size, int parts, int k) {
  Index base = size / parts;
  Index extra = size % parts;
  Index begin = k * base + std::min<Index>(k, extra);
  return {begin, begin + base + (k < extra ? 1 : 0)};
}

/// The number k of the part that has this index.
inline int part_with(Index size, int parts, Index index) {
  int k = 0;
  while (index >= part(size, parts, k).end) ++k;
  return k;
}

}  // namespace shard
