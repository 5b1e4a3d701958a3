#include "engine/basics/ranges.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

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

/// Transposes square blocks, each through a copy that stays in the cache.
HostTensor transposed(const HostTensor& matrix) {
  constexpr Index most = 32;
  const Index rows = matrix.shape.at(0), columns = matrix.shape.at(1);
  HostTensor result{{columns, rows}, std::vector<float>(matrix.values.size())};
  std::array<float, most * most> square{};
  for (Index top = 0; top < rows; top += most)
    for (Index left = 0; left < columns; left += most) {
      const Index height = std::min(most, rows - top), width = std::min(most, columns - left);
      for (Index r = 0; r < height; ++r)
        std::copy_n(matrix.values.begin() + (top + r) * columns + left, width, square.begin() + r * most);
      for (Index c = 0; c < width; ++c)
        for (Index r = 0; r < height; ++r)
          result.values[static_cast<std::size_t>((left + c) * rows + top + r)] =
              square[static_cast<std::size_t>(r * most + c)];
    }
  return result;
}

}  // namespace shard
