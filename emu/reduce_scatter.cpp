/// reduce_scatter: the first half of the ring all-reduce, where the chunks are slices along an axis.
///
/// n-1 steps. A device sends every slice except its own once: n-1 messages, (n-1)/n of the tensor's bytes.
/// Buffers: one slice; along an axis other than 0 also a copy of the tensor with contiguous slices.

#include "emu/messages.hpp"
#include "engine/device/runtime/collectives/collectives.hpp"
#include "engine/device/runtime/operations/tensor_memory.hpp"

namespace shard::runtime {

using namespace emu;

Task reduce_scatter(Call& call) {
  Tensor& row = call.tensor;
  const ReduceOp op = *call.request.op;
  call.announce(MayDiffer::nothing());
  const int n = call.devices();
  if (n == 1) co_await call.agreement();
  auto slice = [&](int k) {
    Range r = call.slices[static_cast<std::size_t>(call.place(k))];
    return TensorMemory::span(row).subspan(static_cast<std::size_t>(r.begin),
                                           static_cast<std::size_t>(r.size()));
  };
  for (int step = 0; step < n - 1; ++step) {
    std::span<float> sum = slice(call.me() - step - 2);
    std::span<float> incoming = TensorMemory::span(call.buffer).first(sum.size());
    send_values(call, call.right(), slice(call.me() - step - 1));
    // Receive after the agreement: a message of another call may be longer, and Open MPI 4.1 writes past the end.
    if (step == 0) co_await call.agreement();
    receive_values(call, call.left(), incoming);
    co_await call.messages();
    combine(sum, incoming, op);
  }
  if (n > 1) finish_average(slice(call.me()), op, n);
}

}  // namespace shard::runtime
