/// all_to_all: pairwise. In step s = 1 .. n-1 a device sends its part for device me+s and receives from device
/// me-s: n-1 messages, the tensor's bytes less the part it keeps. Parts may differ in size and be empty.
/// Buffers: cutting along an axis other than 0 costs a copy of the tensor in which parts are contiguous, and so
/// does putting together along one.

#include <algorithm>

#include "emu/collectives.hpp"

namespace shard::emu {

Task all_to_all(Call call, Tensor& t, int split_axis, int concat_axis, std::vector<Range> mine) {
  const int n = call.devices();
  std::vector<Index> sizes;
  for (const Range& r : mine) sizes.push_back(r.size());
  co_await call.announce(sizes);
  call.require_agreement(MayDiffer::along(concat_axis));
  if (n == 1) co_return;

  // What device d sends me: its tensor, cut down along split_axis to the part it says is for me.
  const auto split = static_cast<std::size_t>(split_axis);
  const auto concat = static_cast<std::size_t>(concat_axis);
  std::vector<Index> elements;
  std::vector<Index> extents;
  for (int d = 0; d < n; ++d) {
    Shape from = call.said_by(d).shape;
    from[split] = call.said_by(d).for_you;
    elements.push_back(num_elements(from));
    extents.push_back(from[concat]);
  }
  const std::vector<Range> incoming = cut(elements);
  const std::vector<Range> placed = cut(extents);
  Shape result = t.shape();
  result[split] = sizes[static_cast<std::size_t>(call.me())];
  result[concat] = placed.back().end;

  const Index part_of_one = num_elements(with_extent(t.shape(), split_axis, 1));
  Tensor outgoing = packed(std::move(t), split_axis, mine);
  Tensor row = concat_axis == 0 ? Backend::make({incoming.back().end}) : Backend::buffer(incoming.back().end);
  auto to = [&](int d) {
    Range r = mine[static_cast<std::size_t>(d)];
    return Backend::span(outgoing).subspan(static_cast<std::size_t>(r.begin * part_of_one),
                                           static_cast<std::size_t>(r.size() * part_of_one));
  };
  auto from = [&](int d) {
    Range r = incoming[static_cast<std::size_t>(d)];
    return Backend::span(row).subspan(static_cast<std::size_t>(r.begin), static_cast<std::size_t>(r.size()));
  };
  std::ranges::copy(to(call.me()), from(call.me()).begin());
  for (int step = 1; step < n; ++step) {
    call.send(call.place(call.me() + step), to(call.place(call.me() + step)));
    call.receive(call.place(call.me() - step), from(call.place(call.me() - step)));
    co_await call.messages();
  }
  outgoing = Tensor();
  t = unpacked(std::move(row), result, concat_axis, placed);
}

}  // namespace shard::emu
