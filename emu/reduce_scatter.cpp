/// reduce_scatter: the first half of the ring all-reduce, with slices along an axis for chunks.
///
/// n-1 steps; a device sends every slice but its own once: n-1 messages, (n-1)/n of the tensor's bytes.
/// Buffers: one slice; along an axis other than 0 also a copy of the tensor in which slices are contiguous.

#include "emu/collectives.hpp"

namespace shard::emu {

Task reduce_scatter(Call call, Tensor& t, ReduceOp op, int axis) {
  co_await call.announce();
  call.require_agreement(MayDiffer::nothing());
  const int n = call.devices();
  if (n == 1) co_return;

  const std::vector<Range> slices = cut(t.extent(axis), n);
  const Shape mine = with_extent(t.shape(), axis, slices[static_cast<std::size_t>(call.me())].size());
  const Index slice_of_one = num_elements(with_extent(t.shape(), axis, 1));
  Tensor row = packed(std::move(t), axis, slices);
  auto slice = [&](int k) {
    Range r = slices[static_cast<std::size_t>(call.place(k))];
    return Backend::span(row).subspan(static_cast<std::size_t>(r.begin * slice_of_one),
                                      static_cast<std::size_t>(r.size() * slice_of_one));
  };
  {
    Tensor buffer = Backend::buffer(slices[0].size() * slice_of_one);
    for (int step = 0; step < n - 1; ++step) {
      std::span<float> sum = slice(call.me() - step - 2);
      std::span<float> incoming = Backend::span(buffer).first(sum.size());
      call.send(call.right(), slice(call.me() - step - 1));
      call.receive(call.left(), incoming);
      co_await call.messages();
      combine(sum, incoming, op);
    }
  }
  finish_average(slice(call.me()), op, n);
  t = Backend::make(mine);
  std::ranges::copy(slice(call.me()), Backend::data(t));
}

}  // namespace shard::emu
