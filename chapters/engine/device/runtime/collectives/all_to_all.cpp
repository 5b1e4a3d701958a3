/// all_to_all: a part of each member's tensor to each member.

#include <fmt/format.h>

#include "engine/device/runtime/collectives/collectives.hpp"

namespace shard::runtime {

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

const Definition rows::all_to_all = {
    .name = "all_to_all",
    .details =
        [](const Request& r, const std::vector<int>&) {
          return fmt::format(" of {} from axis {} to axis {}{}", to_string(r.shape), *r.axis, *r.concat_axis,
                             r.counts ? " by counts" : "");
        },
    .prepare =
        [](Call& call) {
          const Request& r = call.request;
          call.slices = r.counts ? cut(*r.counts) : cut(call.tensor.extent(*r.axis), call.devices());
        },
    .body = runtime::all_to_all,
    .sent =
        [](const Call& call) {
          const Index of_one = num_elements(with_extent(call.request.shape, *call.request.axis, 1));
          return pairwise_all_to_all(sizes_of(scaled(call.slices, of_one)), call.me());
        },
};

}  // namespace shard::runtime
