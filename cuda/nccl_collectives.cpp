/// The collectives, by NCCL, in the queue of communication.
///
/// Booked as sent is what the algorithms send that the closed forms (chapters/engine/device/collective_costs.hpp) speak of:
/// rings, and for broadcasts a tree. NCCL chooses between these and others by size and topology; a ring's
/// total is the least that is possible.

#include "cuda/gpu_slices.hpp"
#include "cuda/nccl_communicators.hpp"
#include "cuda/success.hpp"
#include "engine/device/collective_costs.hpp"
#include "engine/device/runtime/collective_bodies.hpp"

namespace shard::runtime {

using namespace cuda;

namespace {

ncclRedOp_t nccl(ReduceOp op) {
  switch (op) {
    case ReduceOp::max:
      return ncclMax;
    case ReduceOp::min:
      return ncclMin;
    case ReduceOp::prod:
      return ncclProd;
    default:  // an average is divided at the end: NCCL's own divides addends, which rounds each
      return ncclSum;
  }
}

std::size_t count(Index elements) {
  return static_cast<std::size_t>(elements);
}

bool are_equal(const std::vector<Range>& slices) {
  return std::ranges::all_of(slices, [&](const Range& r) { return r.size() == slices[0].size(); });
}

/// So many elements of each, in ranges along an axis.
std::vector<Range> scaled(std::vector<Range> ranges, Index of_one) {
  for (Range& r : ranges) r = {r.begin * of_one, r.end * of_one};
  return ranges;
}

std::vector<Index> sizes_of(const std::vector<Range>& ranges) {
  std::vector<Index> sizes;
  for (const Range& r : ranges) sizes.push_back(r.size());
  return sizes;
}

/// Everybody's slice into everybody's row.
void gather(const float* mine, float* row, const std::vector<Range>& slices) {
  const auto [comm, queue] = wire_to_all();
  if (are_equal(slices)) {
    SHARDBOOK_CHECK(ncclAllGather(mine, row, count(slices[0].size()), ncclFloat, comm, queue));
    return;
  }
  Group group;
  for (std::size_t d = 0; d < slices.size(); ++d)
    if (slices[d].size() > 0)
      SHARDBOOK_CHECK(ncclBroadcast(mine, row + slices[d].begin, count(slices[d].size()), ncclFloat,
                                    static_cast<int>(d), comm, queue));
}

/// Everybody's rows combined, the slice of each device in its own row.
void scatter(float* row, const std::vector<Range>& slices, std::size_t me, ReduceOp op) {
  const auto [comm, queue] = wire_to_all();
  if (are_equal(slices)) {
    SHARDBOOK_CHECK(ncclReduceScatter(row, row + slices[me].begin, count(slices[me].size()), ncclFloat,
                                      nccl(op), comm, queue));
    return;
  }
  Group group;
  for (std::size_t d = 0; d < slices.size(); ++d)
    if (slices[d].size() > 0)
      SHARDBOOK_CHECK(ncclReduce(row + slices[d].begin, row + slices[d].begin, count(slices[d].size()),
                                 ncclFloat, nccl(op), static_cast<int>(d), comm, queue));
}

void average(float* sums, Index elements, ReduceOp op, int devices) {
  if (op == ReduceOp::avg) divide(wire_to_all().queue, sums, elements, static_cast<float>(devices));
}

}  // namespace

Task all_reduce(Call call, Operation& o, ReduceOp op, Tensor) {
  co_await call.announce();
  call.require_agreement(MayDiffer::nothing());
  const Index size = o.tensor.size();
  if (call.devices() == 1 || size == 0) co_return;
  ledger().sent(Collective::all_reduce, ring_all_reduce(size, call.devices(), call.me()));
  const auto [comm, queue] = wire_to_all();
  Queueing queueing(o, queue);
  float* data = data_on(queue, o.tensor);
  SHARDBOOK_CHECK(ncclAllReduce(data, data, count(size), ncclFloat, nccl(op), comm, queue));
  average(data, size, op, call.devices());
}

Task reduce_scatter(Call call, Operation& o, ReduceOp op, std::vector<Range> slices, Tensor) {
  co_await call.announce();
  call.require_agreement(MayDiffer::nothing());
  if (call.devices() == 1 || o.tensor.size() == 0) co_return;
  ledger().sent(Collective::reduce_scatter, ring_reduce_scatter(sizes_of(slices), call.me()));
  const auto me = static_cast<std::size_t>(call.me());
  const cudaStream_t queue = wire_to_all().queue;
  Queueing queueing(o, queue);
  float* row = data_on(queue, o.tensor);
  scatter(row, slices, me, op);
  average(row + slices[me].begin, slices[me].size(), op, call.devices());
}

Task all_gather(Call call, Operation& o, int axis) {
  Tensor& t = o.tensor;
  co_await call.announce();
  call.require_agreement(MayDiffer::along(axis));
  if (call.devices() == 1) co_return;

  std::vector<Index> extents;
  for (int d = 0; d < call.devices(); ++d)
    extents.push_back(call.said_by(d).shape[static_cast<std::size_t>(axis)]);
  const std::vector<Range> slices = cut(extents);
  const Shape whole = with_extent(t.shape(), axis, slices.back().end);
  const std::vector<Range> elements = scaled(slices, num_elements(with_extent(whole, axis, 1)));
  ledger().sent(Collective::all_gather, ring_all_gather(sizes_of(elements), call.me()));
  const cudaStream_t queue = wire_to_all().queue;
  Queueing queueing(o, queue);
  Tensor row = make_on(queue, {elements.back().end}, axis == 0 ? Purpose::activations : Purpose::buffers);
  if (row.size() > 0) gather(data_on(queue, std::as_const(t)), data_on(queue, row), elements);
  t = Tensor();
  t = unpacked_on(queue, std::move(row), whole, axis, slices);
}

Task broadcast(Call call, Operation& o, int root) {
  co_await call.announce();
  call.require_agreement(MayDiffer::all());
  if (call.devices() == 1) co_return;
  const Shape& shape = call.said_by(root).shape;
  const auto [comm, queue] = wire_to_all();
  Queueing queueing(o, queue);
  if (call.me() != root) o.tensor = make_on(queue, shape);
  const Index size = num_elements(shape);
  if (size == 0) co_return;
  ledger().sent(Collective::broadcast, tree_broadcast(size, call.devices(), call.me(), root));
  float* data = data_on(queue, o.tensor);
  SHARDBOOK_CHECK(ncclBroadcast(data, data, count(size), ncclFloat, root, comm, queue));
}

/// All devices' hosts and GPUs have come here, in both queues: the hosts' meeting is the announcement itself.
Task barrier(Call call, Operation& o) {
  { Queueing behind_what_was_started(o, gpu().communication()); }
  co_await passage_of(o).end;
  co_await call.announce();
  call.require_agreement(MayDiffer::all());
  ledger().sent(Collective::barrier, tree_barrier(call.devices(), call.me()));
}

Task send_async(Call call, Operation& o, Tensor src, Tensor dst, std::optional<int> target) {
  co_await call.announce();
  call.require_agreement(MayDiffer::all());
  const std::optional<int> source = source_of(call, dst.shape());
  const cudaStream_t queue = gpu().communication();
  Queueing queueing(o, queue);
  const float* from = data_on(queue, std::as_const(src));
  float* to = data_on(queue, dst);
  if (target == call.me()) {
    cuda::copy(queue, from, to, src.size());
    co_return;
  }
  Group group;
  const ncclComm_t comm = wire_to_all().comm;
  if (target && src.size() > 0) {
    ledger().sent(Collective::send_async, src.bytes());
    SHARDBOOK_CHECK(ncclSend(from, count(src.size()), ncclFloat, *target, comm, queue));
  }
  if (source && dst.size() > 0)
    SHARDBOOK_CHECK(ncclRecv(to, count(dst.size()), ncclFloat, *source, comm, queue));
}

}  // namespace shard::runtime
