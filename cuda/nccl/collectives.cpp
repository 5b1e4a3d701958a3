/// The collectives, by NCCL, in the communication stream.
///
/// Bytes are booked from closed forms (chapters/engine/device/books/collective_costs.hpp) of rings, and of a
/// tree for broadcasts. They are not measured: NCCL chooses its algorithm by size and topology. No algorithm
/// sends less in total than a ring.

#include "engine/device/runtime/collectives/collectives.hpp"

#include "cuda/gpu_slices.hpp"
#include "cuda/nccl/connections.hpp"
#include "cuda/success.hpp"
#include "engine/device/runtime/groups/tree.hpp"

namespace shard::cuda {

using namespace runtime;

namespace {

ncclRedOp_t nccl(ReduceOp op) {
  switch (op) {
    case ReduceOp::max:
      return ncclMax;
    case ReduceOp::min:
      return ncclMin;
    case ReduceOp::prod:
      return ncclProd;
    default:  // for avg, too: NCCL's own average rounds each addend, so we divide the sum
      return ncclSum;
  }
}

std::size_t count(Index elements) {
  return static_cast<std::size_t>(elements);
}

bool are_equal(const std::vector<Range>& slices) {
  return std::ranges::all_of(slices, [&](const Range& r) { return r.size() == slices[0].size(); });
}

/// Gathers all devices' slices into `row`, on each device.
void gather(const Group& group, const float* mine, float* row, const std::vector<Range>& slices) {
  const auto [comm, stream] = collectives_of(group);
  if (are_equal(slices)) {
    SHARDBOOK_CHECK(ncclAllGather(mine, row, count(slices[0].size()), ncclFloat, comm, stream));
    return;
  }
  NcclGroupCall together;
  for (std::size_t d = 0; d < slices.size(); ++d)
    if (slices[d].size() > 0)
      SHARDBOOK_CHECK(ncclBroadcast(mine, row + slices[d].begin, count(slices[d].size()), ncclFloat,
                                    static_cast<int>(d), comm, stream));
}

/// Reduces all devices' rows. Each device's slice of the result replaces that slice of its row.
void scatter(const Group& group, float* row, const std::vector<Range>& slices, ReduceOp op) {
  const auto [comm, stream] = collectives_of(group);
  const auto me = static_cast<std::size_t>(group.device_id());
  if (are_equal(slices)) {
    SHARDBOOK_CHECK(ncclReduceScatter(row, row + slices[me].begin, count(slices[me].size()), ncclFloat,
                                      nccl(op), comm, stream));
    return;
  }
  NcclGroupCall together;
  for (std::size_t d = 0; d < slices.size(); ++d)
    if (slices[d].size() > 0)
      SHARDBOOK_CHECK(ncclReduce(row + slices[d].begin, row + slices[d].begin, count(slices[d].size()),
                                 ncclFloat, nccl(op), static_cast<int>(d), comm, stream));
}

void average(const Group& group, float* sums, Index elements, ReduceOp op) {
  if (op == ReduceOp::avg)
    divide(collectives_of(group).stream, sums, elements, static_cast<float>(group.num_devices()));
}

/// Launches a send_async's message to the target, and that of the source.
void launch_messages(Call& call, std::optional<int> target, std::optional<int> source, Tensor& received) {
  const cudaStream_t stream = gpu().communication();
  LaunchIn launch(stream, call);
  const float* from = data_on(stream, std::as_const(call.tensor));
  float* to = data_on(stream, received);
  const Index size = call.tensor.size();
  if (target == call.me()) return cuda::copy(stream, from, to, size);
  NcclGroupCall together;
  const ncclComm_t comm = collectives_of(call.group()).comm;
  if (target && size > 0) {
    book(call);
    SHARDBOOK_CHECK(ncclSend(from, count(size), ncclFloat, *target, comm, stream));
  }
  if (source && received.size() > 0)
    SHARDBOOK_CHECK(ncclRecv(to, count(received.size()), ncclFloat, *source, comm, stream));
}

}  // namespace

Task all_reduce(Call& call) {
  const ReduceOp op = *call.request.op;
  call.announce(MayDiffer::nothing());
  co_await call.agreement();
  const Index size = call.tensor.size();
  if (call.devices() == 1 || size == 0) co_return;
  book(call);
  const auto [comm, stream] = collectives_of(call.group());
  LaunchIn launch(stream, call);
  float* data = data_on(stream, call.tensor);
  SHARDBOOK_CHECK(ncclAllReduce(data, data, count(size), ncclFloat, nccl(op), comm, stream));
  average(call.group(), data, size, op);
}

Task reduce_scatter(Call& call) {
  const ReduceOp op = *call.request.op;
  const std::vector<Range>& slices = call.slices;
  call.announce(MayDiffer::nothing());
  co_await call.agreement();
  if (call.devices() == 1 || call.tensor.size() == 0) co_return;
  book(call);
  const auto me = static_cast<std::size_t>(call.me());
  const cudaStream_t stream = collectives_of(call.group()).stream;
  LaunchIn launch(stream, call);
  float* row = data_on(stream, call.tensor);
  scatter(call.group(), row, slices, op);
  average(call.group(), row + slices[me].begin, slices[me].size(), op);
}

Task all_gather(Call& call) {
  Tensor& t = call.tensor;
  const int axis = *call.request.axis;
  call.announce(MayDiffer::along(axis));
  co_await call.agreement();
  if (call.devices() == 1) co_return;

  const std::vector<Range>& slices = call.slices = gathered_slices(call);
  const Shape whole = with_extent(t.shape(), axis, slices.back().end);
  const std::vector<Range> elements = scaled(slices, num_elements(with_extent(whole, axis, 1)));
  book(call);
  const cudaStream_t stream = collectives_of(call.group()).stream;
  LaunchIn launch(stream, call);
  Tensor row = std::move(call.buffer);
  if (row.size() != elements.back().end)
    row = make_on(stream, {elements.back().end}, axis == 0 ? Purpose::activations : Purpose::buffers);
  if (row.size() > 0) gather(call.group(), data_on(stream, std::as_const(t)), data_on(stream, row), elements);
  t = Tensor();
  t = unpacked_on(stream, std::move(row), whole, axis, slices);
}

Task broadcast(Call& call) {
  const int root = call.peer();
  call.announce(MayDiffer::all());
  co_await call.agreement();
  if (call.devices() == 1) co_return;
  const Tree tree(call.me(), call.devices(), root);
  call.take_shape(tree, call.tensor.shape());
  co_await call.messages();
  call.pass_on_shape(tree);
  co_await call.messages();
  const Shape shape = call.received_shape();
  const auto [comm, stream] = collectives_of(call.group());
  LaunchIn launch(stream, call);
  if (call.me() != root) call.tensor = make_on(stream, shape);
  const Index size = num_elements(shape);
  if (size == 0) co_return;
  book(call);
  float* data = data_on(stream, call.tensor);
  SHARDBOOK_CHECK(ncclBroadcast(data, data, count(size), ncclFloat, root, comm, stream));
}

/// The barrier ends when all members' GPUs have done the earlier work of the computation and communication
/// streams. Each host waits for its GPU, then announces the call, and then waits for all announcements.
Task barrier(Call& call) {
  { LaunchIn after_earlier_work(gpu().communication(), call); }
  co_await *events_of(call).end;
  call.announce(MayDiffer::all());
  co_await call.agreement();
  book(call);
}

Task send_async(Call& call) {
  const Tensor& src = call.tensor;
  Tensor& dst = *call.request.into;
  const std::optional<int> target = call.request.peer;
  call.announce(MayDiffer::all());
  co_await call.agreement();
  const std::optional<int> source = source_of(call);
  call.exchange_shapes(src.shape(), target, source);
  co_await call.messages();
  const bool fits = !source || call.received_shape() == dst.shape();
  // What does not fit is received, too, and then refused: the source's GPU waits for this device.
  Tensor other = fits ? Tensor() : make_on(gpu().communication(), call.received_shape());
  launch_messages(call, target, source, fits ? dst : other);
  if (source) require_same_shape(call, *source, dst.shape());
}

}  // namespace shard::cuda
