/// all_to_all: pairwise. In step s = 1 .. n-1 a device sends its part for device me+s and receives from device
/// me-s: n-1 messages, the tensor's bytes except the part that it keeps. Parts may differ in size and be empty.
/// Buffers: a copy of the tensor with contiguous parts, for each of the two axes that is not 0.

#include <algorithm>

#include "emu/messages.hpp"
#include "emu/slice_copies.hpp"
#include "engine/device/runtime/collectives/collectives.hpp"

namespace shard::runtime {

using namespace emu;

namespace {

/// The elements of a range in a tensor, where each index has `of_one` elements.
std::span<float> stretch(Tensor& row, Range r, Index of_one = 1) {
  return TensorMemory::span(row).subspan(static_cast<std::size_t>(r.begin * of_one),
                                         static_cast<std::size_t>(r.size() * of_one));
}

}  // namespace

Task all_to_all(Call& call) {
  Tensor& t = call.tensor;
  const int split_axis = *call.request.axis, concat_axis = *call.request.concat_axis;
  const std::vector<Range>& mine = call.slices;
  const int n = call.devices();
  call.announce(MayDiffer::along(concat_axis));
  call.exchange_counts();
  co_await call.agreement();
  co_await call.messages();
  if (n == 1) co_return;

  const Arrivals incoming = arrivals(call, t.shape(), split_axis, concat_axis);
  const Index total = incoming.elements.back().end;
  const Index part_of_one = num_elements(with_extent(t.shape(), split_axis, 1));
  Tensor outgoing = emu::packed(std::move(t), split_axis, mine);
  Tensor row = concat_axis == 0 ? TensorMemory::make({total}) : TensorMemory::buffer(total);
  auto to = [&](int d) { return stretch(outgoing, mine[static_cast<std::size_t>(d)], part_of_one); };
  auto from = [&](int d) { return stretch(row, incoming.elements[static_cast<std::size_t>(d)]); };
  std::ranges::copy(to(call.me()), from(call.me()).begin());
  for (int step = 1; step < n; ++step) {
    const int next = call.place(call.me() + step);
    const int previous = call.place(call.me() - step);
    send_values(call, next, to(next));
    receive_values(call, previous, from(previous));
    co_await call.messages();
  }
  outgoing = Tensor();
  t = unpacked(std::move(row), incoming.result, concat_axis, incoming.placed);
}

}  // namespace shard::runtime
