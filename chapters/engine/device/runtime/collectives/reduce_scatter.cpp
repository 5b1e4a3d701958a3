/// reduce_scatter: the reduction of all members' tensors, a slice of it on each.

#include <fmt/format.h>

#include "engine/device/runtime/collectives/collectives.hpp"

namespace shard::runtime {

namespace {

/// Rearranges the argument by slices. The result is taken out when the caller waits.
void cut_for_reduction(Call& call) {
  Tensor& t = call.tensor;
  call.slices = {{0, t.size()}};
  if (call.devices() == 1) return;
  const int axis = *call.request.axis;
  const auto me = static_cast<std::size_t>(call.me());
  const std::vector<Range> slices = cut(t.extent(axis), call.devices());
  const Index of_one = num_elements(with_extent(t.shape(), axis, 1));
  const Shape shape = with_extent(t.shape(), axis, slices[me].size());
  t = packed(std::move(t), axis, slices);
  call.slices = scaled(slices, of_one);
  call.buffer = ring_buffer_of(call.slices[0].size());
  call.finish = [mine = call.slices[me], shape](Tensor& row) {
    const Index all = row.size();
    row = slice(std::move(row).reshaped({all}), 0, mine.begin, mine.end).reshaped(shape);
  };
}

}  // namespace

const Definition rows::reduce_scatter = {
    .name = "reduce_scatter",
    .details =
        [](const Request& r, const std::vector<int>&) {
          return fmt::format("({}) of {} along axis {}", name(*r.op), to_string(r.shape), *r.axis);
        },
    .prepare = cut_for_reduction,
    .body = runtime::reduce_scatter,
    .sent = [](const Call& call) { return ring_reduce_scatter(sizes_of(call.slices), call.me()); },
};

}  // namespace shard::runtime
