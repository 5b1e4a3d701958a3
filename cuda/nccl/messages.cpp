/// send and receive, nonblocking or blocking: the hosts agree on an order, and then NCCL sends the message.
///
/// The sender's host sends the shape. When the receiver's host has called receive, the host with the lower id
/// in the job gives the message its position among all messages of the two devices, and both launch it in this
/// order. So both GPUs execute the messages of the two directions in one order, and a GPU never waits in a stream for a
/// host that has not launched its side.

#include <fmt/format.h>

#include "cuda/gpu_memory.hpp"
#include "cuda/nccl/connections.hpp"
#include "cuda/success.hpp"
#include "engine/device/runtime/collectives/collectives.hpp"

namespace shard::cuda {

using namespace runtime;

using Number = std::array<Index, 1>;

namespace {

void launch_send(Link& link, Call& call) {
  const auto [comm, stream] = link.connected(call.group(), call.peer());
  LaunchIn launch(stream, call);
  ++link.launched;
  if (call.tensor.size() == 0) return;
  book(call);
  SHARDBOOK_CHECK(ncclSend(data_on(stream, std::as_const(call.tensor)),
                           static_cast<std::size_t>(call.tensor.size()), ncclFloat, link.rank_of_peer(), comm,
                           stream));
}

/// Launches it for what was sent, also where another shape is expected: the sender's GPU waits for this device.
void launch_receive(Link& link, Call& call, const Shape& shape) {
  const auto [comm, stream] = link.connected(call.group(), call.peer());
  LaunchIn launch(stream, call);
  ++link.launched;
  if (call.tensor.shape() != shape) call.tensor = make_on(stream, shape);
  if (call.tensor.size() == 0) return;
  SHARDBOOK_CHECK(ncclRecv(data_on(stream, call.tensor), static_cast<std::size_t>(call.tensor.size()),
                           ncclFloat, link.rank_of_peer(), comm, stream));
}

}  // namespace

Task send(Call& call) {
  Group* const group = &call.group();
  const int to = call.peer();
  Pair& pair = pair_with(*group, to);
  Link& link = pair.link;
  const Index number = pair.sent++;
  const std::vector<Index> shape = numbers_of(call.tensor.shape());
  Number position{};
  Posts shape_sent, answer, position_sent;
  group->post(shape_sent, Channel::message_shape, to, shape);
  group->post_receive(answer, link.decides_order() ? Channel::receiver_ready : Channel::place_to_send, to,
                      position);
  co_await shape_sent;
  co_await answer;
  if (link.decides_order()) {
    Turn turn(pair.ordered_sends, number);
    co_await turn;
    MayWaitForPeer may_connect;
    co_await may_connect;
    position[0] = link.next_position();
    group->post(position_sent, Channel::place_to_receive, to, position);
    ++pair.ordered_sends;
    link.connected(*group, to);  // at once: the receiver may wait in connected()
  }
  Turn turn(link.launched, position[0]);
  co_await turn;
  launch_send(link, call);
  co_await position_sent;  // after the launch, for which the receiver's GPU may already wait
}

/// A post_receive's tensor has its shape and memory already.
Task receive(Call& call) {
  Group* const group = &call.group();
  const int from = call.peer();
  Pair& pair = pair_with(*group, from);
  Link& link = pair.link;
  const Index number = pair.received++;
  std::vector<Index> numbers(most_shape_numbers);
  Number position{};
  Posts shape_received, answer, position_received;
  group->post_receive(shape_received, Channel::message_shape, from, numbers);
  if (!link.decides_order())
    group->post_receive(position_received, Channel::place_to_receive, from, position);
  co_await shape_received;
  const Shape shape = shape_from(numbers);
  Turn turn_to_answer(pair.ordered_receives, number);
  co_await turn_to_answer;
  MayWaitForPeer may_connect;
  if (link.decides_order()) {
    co_await may_connect;
    position[0] = link.next_position();
  }
  group->post(answer, link.decides_order() ? Channel::place_to_send : Channel::receiver_ready, from,
              position);
  ++pair.ordered_receives;
  if (link.decides_order()) link.connected(*group, from);  // at once: the sender may wait in connected()
  co_await position_received;
  Turn turn(link.launched, position[0]);
  co_await turn;
  launch_receive(link, call, shape);
  co_await answer;  // after the launch, for which the sender's GPU may already wait
  if (const std::optional<Shape>& expected = call.request.arrives; expected && shape != *expected)
    refuse(Code::mismatch, call.name, to_string(*expected),
           fmt::format("{} from device {}", to_string(shape), group->member(from)));
}

}  // namespace shard::cuda
