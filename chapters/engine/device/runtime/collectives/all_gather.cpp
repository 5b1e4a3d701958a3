/// all_gather: the slices of all members, joined, on each of them.

#include <fmt/format.h>

#include "engine/device/runtime/collectives/collectives.hpp"

namespace shard::runtime {

namespace {

void make_room(Call& call) {
  const Request& r = call.request;
  if (call.devices() > 1 && r.arrives) call.buffer = room_for_slices(num_elements(*r.arrives), *r.axis);
  if (call.devices() == 1 && r.is_shared) call.tensor = call.tensor.clone();
}

}  // namespace

std::vector<Range> gathered_slices(const Call& call) {
  std::vector<Index> extents;
  for (int d = 0; d < call.devices(); ++d) extents.push_back(call.agreement().extent_of(d));
  return cut(extents);
}

const Definition rows::all_gather = {
    .name = "all_gather",
    .details =
        [](const Request& r, const std::vector<int>&) {
          return fmt::format(" of {} along axis {}", to_string(r.shape), *r.axis);
        },
    .prepare = make_room,
    .body = runtime::all_gather,
    .sent =
        [](const Call& call) {
          const Index of_one = num_elements(with_extent(call.request.shape, *call.request.axis, 1));
          return ring_all_gather(sizes_of(scaled(call.slices, of_one)), call.me());
        },
};

}  // namespace shard::runtime
