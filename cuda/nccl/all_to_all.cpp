/// all_to_all: all sends and receives of a device in one NCCL group call. Parts may differ in size and be empty.
/// Buffers: a copy of the tensor with contiguous parts, for each of the two axes that is not 0.

#include "cuda/gpu_slices.hpp"
#include "cuda/nccl/connections.hpp"
#include "cuda/success.hpp"
#include "engine/device/runtime/collectives/collectives.hpp"

namespace shard::cuda {

using namespace runtime;

namespace {

/// Sends every part to its device, and receives this device's part from each device.
void exchange_parts(const Group& group, const float* outgoing, const std::vector<Range>& mine, float* row,
                    const std::vector<Range>& incoming) {
  const auto [comm, stream] = collectives_of(group);
  const auto own = static_cast<std::size_t>(group.device_id());
  cuda::copy(stream, outgoing + mine[own].begin, row + incoming[own].begin, mine[own].size());
  NcclGroupCall together;
  for (std::size_t d = 0; d < mine.size(); ++d) {
    if (d == own) continue;
    if (mine[d].size() > 0)
      SHARDBOOK_CHECK(ncclSend(outgoing + mine[d].begin, static_cast<std::size_t>(mine[d].size()), ncclFloat,
                               static_cast<int>(d), comm, stream));
    if (incoming[d].size() > 0)
      SHARDBOOK_CHECK(ncclRecv(row + incoming[d].begin, static_cast<std::size_t>(incoming[d].size()),
                               ncclFloat, static_cast<int>(d), comm, stream));
  }
}

}  // namespace

Task all_to_all(Call& call) {
  Tensor& t = call.tensor;
  const int split_axis = *call.request.axis, concat_axis = *call.request.concat_axis;
  const std::vector<Range>& mine = call.slices;
  call.announce(MayDiffer::along(concat_axis));
  call.exchange_counts();
  co_await call.agreement();
  co_await call.messages();
  if (call.devices() == 1) co_return;

  const Arrivals incoming = arrivals(call, t.shape(), split_axis, concat_axis);
  const std::vector<Range> parts = scaled(mine, num_elements(with_extent(t.shape(), split_axis, 1)));
  book(call);
  const cudaStream_t stream = collectives_of(call.group()).stream;
  LaunchIn launch(stream, call);
  Tensor outgoing = packed_on(stream, std::move(t), split_axis, mine);
  Tensor row = make_on(stream, {incoming.elements.back().end},
                       concat_axis == 0 ? Purpose::activations : Purpose::buffers);
  exchange_parts(call.group(), data_on(stream, std::as_const(outgoing)), parts, data_on(stream, row),
                 incoming.elements);
  outgoing = Tensor();
  t = unpacked_on(stream, std::move(row), incoming.result, concat_axis, incoming.placed);
}

}  // namespace shard::cuda
