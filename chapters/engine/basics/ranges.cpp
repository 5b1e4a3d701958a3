#include "engine/basics/ranges.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace shard {

Ranges all_of(const Shape& whole) {
  Ranges all;
  for (const Index extent : whole) all.push_back({0, extent});
  return all;
}

Ranges along(const Shape& whole, int axis, Index begin, Index end) {
  Ranges some = all_of(whole);
  some.at(static_cast<std::size_t>(axis)) = {begin, end};
  return some;
}

Shape shape_of(const Ranges& ranges) {
  Shape shape;
  for (const Range& range : ranges) shape.push_back(range.size());
  return shape;
}

Ranges common(const Ranges& a, const Ranges& b) {
  Ranges both;
  for (std::size_t d = 0; d < a.size(); ++d) {
    const Index begin = std::max(a[d].begin, b[d].begin);
    both.push_back({begin, std::max(begin, std::min(a[d].end, b[d].end))});
  }
  return both;
}

bool fits(const Ranges& ranges, const Shape& whole) {
  return std::ranges::equal(ranges, whole, [](const Range& range, Index extent) {
    return 0 <= range.begin && range.begin <= range.end && range.end <= extent;
  });
}

std::string to_string(const Ranges& ranges) {
  std::vector<std::string> texts;
  for (const auto& [begin, end] : ranges)
    texts.push_back(begin < end ? fmt::format("{}-{}", begin, end - 1) : "none");
  return fmt::format("({})", fmt::join(texts, ", "));
}

}  // namespace shard
