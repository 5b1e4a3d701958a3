/// all_gather: a ring. In n-1 steps every slice goes around the ring. A device sends every slice once, except
/// that of its right neighbour. These are n-1 messages, with the tensor's bytes less those of one slice.
/// Along an axis other than 0 the slices are gathered one behind the other in a buffer and then put in place.

#include <algorithm>

#include "emu/messages.hpp"
#include "emu/operations/slice_copies.hpp"
#include "engine/device/runtime/collective_bodies.hpp"

namespace shard::runtime {

using namespace emu;

Task all_gather(Call& call) {
  Tensor& t = call.tensor;
  const int axis = call.request.axis;
  call.announce(MayDiffer::along(axis));
  const int n = call.devices();
  if (n > 1) send_values(call, call.right(), TensorMemory::span(std::as_const(t)));
  co_await call.agreement();
  if (n == 1) co_return;

  std::vector<Index> extents;
  for (int d = 0; d < n; ++d) extents.push_back(call.agreement().extent_of(d));
  const std::vector<Range> slices = cut(extents);
  const Shape whole = with_extent(t.shape(), axis, slices.back().end);
  const Index slice_of_one = num_elements(with_extent(whole, axis, 1));
  const bool has_room = num_elements(whole) > 0 && call.buffer.size() == num_elements(whole);
  Tensor row = has_room ? std::move(call.buffer) : room_for_slices(num_elements(whole), axis);
  auto slice = [&](int k) {
    Range r = slices[static_cast<std::size_t>(call.place(k))];
    return TensorMemory::span(row).subspan(static_cast<std::size_t>(r.begin * slice_of_one),
                                           static_cast<std::size_t>(r.size() * slice_of_one));
  };
  for (int step = 0; step < n - 1; ++step) {
    // In step 0 this device's slice is on its way already, from the argument.
    if (step > 0) send_values(call, call.right(), slice(call.me() - step));
    receive_values(call, call.left(), slice(call.me() - step - 1));
    if (step == 0) std::ranges::copy(TensorMemory::span(std::as_const(t)), slice(call.me()).begin());
    co_await call.messages();
  }
  t = Tensor();
  t = unpacked(std::move(row), whole, axis, slices);
}

}  // namespace shard::runtime
