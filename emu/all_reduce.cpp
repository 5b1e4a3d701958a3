/// all_reduce: a ring, in the argument's memory.
///
/// The elements are cut into n chunks. In n-1 steps each chunk travels around the ring and collects every
/// device's addend; in n-1 more steps the results travel around. In each half a device sends all chunks except
/// one: 2 (n-1) messages, 2 (n-1)/n of the tensor's bytes, which is optimal (Patarasuk and Yuan 2009). Chunk k
/// is summed in the order of the ring, from device k+1 to device k, so results are reproducible. Buffer: one
/// chunk, until the caller waits.

#include "emu/messages.hpp"
#include "engine/device/runtime/collectives/collectives.hpp"
#include "engine/device/runtime/operations/tensor_memory.hpp"

namespace shard::runtime {

using namespace emu;

Task all_reduce(Call& call) {
  Tensor& t = call.tensor;
  const ReduceOp op = *call.request.op;
  call.announce(MayDiffer::nothing());
  const int n = call.devices();
  if (n == 1) co_await call.agreement();

  auto chunk = [&](int k) {
    Range r = part(t.size(), n, call.place(k));
    return TensorMemory::span(t).subspan(static_cast<std::size_t>(r.begin),
                                         static_cast<std::size_t>(r.size()));
  };
  for (int step = 0; step < n - 1; ++step) {
    std::span<float> sum = chunk(call.me() - step - 2);
    std::span<float> incoming = TensorMemory::span(call.buffer).first(sum.size());
    send_values(call, call.right(), chunk(call.me() - step - 1));
    // Receive after the agreement: a message of another call may be longer, and Open MPI 4.1 writes past the end.
    if (step == 0) co_await call.agreement();
    receive_values(call, call.left(), incoming);
    co_await call.messages();
    combine(sum, incoming, op);
  }
  finish_average(chunk(call.me()), op, n);  // the chunk that is complete on this device
  for (int step = 0; step < n - 1; ++step) {
    send_values(call, call.right(), chunk(call.me() - step));
    receive_values(call, call.left(), chunk(call.me() - step - 1));
    co_await call.messages();
  }
}

}  // namespace shard::runtime
