/// What follows from the numbers that members have exchanged, before data is sent.

#include "engine/device/runtime/collective_bodies.hpp"

#include <fmt/format.h>

namespace shard::runtime {

std::vector<Index> numbers_of(const Shape& shape) {
  std::vector<Index> numbers = {static_cast<Index>(shape.size())};
  numbers.insert(numbers.end(), shape.begin(), shape.end());
  return numbers;
}

Shape shape_from(const std::vector<Index>& numbers) {
  return Shape(numbers.begin() + 1, numbers.begin() + 1 + numbers[0]);
}

std::optional<int> source_of(const Call& call) {
  std::optional<int> source;
  for (int d = 0; d < call.devices(); ++d) {
    const Index target = call.agreement().number_of(d);
    for (int e = 0; e < d; ++e)
      if (target >= 0 && call.agreement().number_of(e) == target)
        refuse(Code::mismatch, "send_async" + call.group().in_group(), "distinct targets",
               fmt::format("device {} as the target of both {} and {}",
                           call.group().member(static_cast<int>(target)), call.group().member(e),
                           call.group().member(d)));
    if (target == call.me()) source = d;
  }
  return source;
}

void require_same_shape(const Call& call, int source, const Shape& dst) {
  if (call.received_shape() != dst)
    refuse(Code::mismatch, "send_async" + call.group().in_group(),
           fmt::format("{} as my dst", to_string(dst)),
           fmt::format("{} from device {}", to_string(call.received_shape()), call.group().member(source)));
}

Arrivals arrivals(Call& call, const Shape& mine, int split_axis, int concat_axis) {
  const auto split = static_cast<std::size_t>(split_axis);
  const auto concat = static_cast<std::size_t>(concat_axis);
  auto part_from = [&](int d, const Shape& whole) {
    return call.request.counts ? call.counts()[static_cast<std::size_t>(d)]
                               : part(whole[split], call.devices(), call.me()).size();
  };
  std::vector<Index> elements, extents;
  for (int d = 0; d < call.devices(); ++d) {
    Shape from = with_extent(mine, concat_axis, call.agreement().extent_of(d));
    from[split] = part_from(d, from);
    elements.push_back(num_elements(from));
    extents.push_back(from[concat]);
  }
  Arrivals all{cut(elements), cut(extents), mine};
  all.result[split] = part_from(call.me(), mine);
  all.result[concat] = all.placed.back().end;
  return all;
}

}  // namespace shard::runtime
