/// all_gather: a ring. In n-1 steps every slice travels around the ring. A device sends every slice once,
/// except its right neighbour's: n-1 messages, all bytes of the result except one slice's. Along an axis other
/// than 0 the slices are gathered in a buffer and then copied to their places.

#include <algorithm>

#include "emu/messages.hpp"
#include "emu/slice_copies.hpp"
#include "engine/device/runtime/collectives/collectives.hpp"

namespace shard::runtime {

using namespace emu;

Task all_gather(Call& call) {
  Tensor& t = call.tensor;
  const int axis = *call.request.axis;
  call.announce(MayDiffer::along(axis));
  const int n = call.devices();
  if (n > 1) send_values(call, call.right(), TensorMemory::span(std::as_const(t)));
  co_await call.agreement();
  if (n == 1) co_return;

  const std::vector<Range> slices = gathered_slices(call);
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
    // Step 0's send was posted before the agreement.
    if (step > 0) send_values(call, call.right(), slice(call.me() - step));
    receive_values(call, call.left(), slice(call.me() - step - 1));
    if (step == 0) std::ranges::copy(TensorMemory::span(std::as_const(t)), slice(call.me()).begin());
    co_await call.messages();
  }
  t = Tensor();
  t = unpacked(std::move(row), whole, axis, slices);
}

}  // namespace shard::runtime
