/// What devices have agreed on, before any data moves.

#include <fmt/format.h>

#include "engine/device/runtime/collective_bodies.hpp"

namespace shard::runtime {

std::vector<Index> numbers_of(const Shape& shape) {
  std::vector<Index> numbers = {static_cast<Index>(shape.size())};
  numbers.insert(numbers.end(), shape.begin(), shape.end());
  return numbers;
}

Shape shape_from(const std::vector<Index>& numbers) {
  return Shape(numbers.begin() + 1, numbers.begin() + 1 + numbers[0]);
}

std::optional<int> source_of(const Call& call, const Shape& dst) {
  std::optional<int> source;
  for (int d = 0; d < call.devices(); ++d) {
    Index theirs = call.said_by(d).peer;
    for (int e = 0; e < d; ++e)
      if (theirs >= 0 && call.said_by(e).peer == theirs)
        refuse(Code::mismatch, "send_async", "distinct targets",
               fmt::format("device {} as the target of both {} and {}",
                           call.group().member(static_cast<int>(theirs)), call.group().member(e),
                           call.group().member(d)));
    if (theirs == call.me()) source = d;
  }
  if (source && call.said_by(*source).shape != dst)
    refuse(Code::mismatch, "send_async", fmt::format("{} as my dst", to_string(dst)),
           fmt::format("{} from device {}", to_string(call.said_by(*source).shape),
                       call.group().member(*source)));
  return source;
}

Arrivals arrivals(const Call& call, const Shape& mine, int split_axis, int concat_axis) {
  const auto split = static_cast<std::size_t>(split_axis);
  const auto concat = static_cast<std::size_t>(concat_axis);
  std::vector<Index> elements, extents;
  for (int d = 0; d < call.devices(); ++d) {
    Shape from = with_extent(call.said_by(d).shape, split_axis, call.said_by(d).for_you);
    elements.push_back(num_elements(from));
    extents.push_back(from[concat]);
  }
  Arrivals all{cut(elements), cut(extents), mine};
  all.result[split] = call.said_by(call.me()).for_you;
  all.result[concat] = all.placed.back().end;
  return all;
}

}  // namespace shard::runtime
