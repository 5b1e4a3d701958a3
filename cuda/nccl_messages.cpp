/// send and receive, posted or blocking: the hosts agree on an order, and then NCCL sends the message.
///
/// The sender's host sends the shape. When the receiver's host has called receive, the one with the lower id
/// in the job gives the message its position in the pair's order, and both launch it in that order. So a GPU
/// never waits in a stream for a host that may be waiting for it, and both GPUs take the messages of the two
/// directions in one order.

#include <fmt/format.h>

#include "cuda/gpu_memory.hpp"
#include "cuda/nccl_connections.hpp"
#include "cuda/success.hpp"
#include "engine/device/runtime/collective_bodies.hpp"

namespace shard::runtime {

using namespace cuda;

namespace {

using Number = std::array<Index, 1>;

void launch_send(const Group& group, Pair& pair, Operation& o) {
  const auto [comm, stream] = pair.connected(group);
  LaunchIn launch(stream, o);
  ++pair.launched;
  if (o.tensor.size() == 0) return;
  ledger().sent(group.id(), Collective::send, {1, o.tensor.bytes()});
  SHARDBOOK_CHECK(ncclSend(data_on(stream, std::as_const(o.tensor)),
                           static_cast<std::size_t>(o.tensor.size()), ncclFloat, pair.rank_of_peer(), comm,
                           stream));
}

/// Without memory for it, the tensor is made in this shape.
void launch_receive(const Group& group, Pair& pair, Operation& o, const Shape& shape, bool has_memory) {
  const auto [comm, stream] = pair.connected(group);
  LaunchIn launch(stream, o);
  ++pair.launched;
  if (!has_memory) o.tensor = make_on(stream, shape);
  if (o.tensor.size() == 0) return;
  SHARDBOOK_CHECK(ncclRecv(data_on(stream, o.tensor), static_cast<std::size_t>(o.tensor.size()), ncclFloat,
                           pair.rank_of_peer(), comm, stream));
}

Task send_message(std::shared_ptr<Group> group, Operation& o, int to) {
  Pair& pair = pair_with(*group, to);
  const Index number = pair.next_sent();
  const std::vector<Index> shape = numbers_of(o.tensor.shape());
  Number position{};
  Posts shape_sent, answer, position_sent;
  group->post(shape_sent, Channel::message_shape, to, shape);
  group->post_receive(answer, pair.decides_order() ? Channel::receiver_ready : Channel::place_to_send, to,
                      position);
  co_await shape_sent;
  co_await answer;
  if (pair.decides_order()) {
    Turn turn(pair.ordered_sends, number);
    co_await turn;
    NoGroupIsBeingMade may_connect;
    co_await may_connect;
    position[0] = pair.next_position();
    group->post(position_sent, Channel::place_to_receive, to, position);
    ++pair.ordered_sends;
    pair.connected(*group);  // before anything else: the receiver may wait there
  }
  Turn turn(pair.launched, position[0]);
  co_await turn;
  launch_send(*group, pair, o);
  co_await position_sent;  // not earlier: the receiver's GPU may have begun
}

/// When the shape `is_expected`, the tensor has it, and its memory.
Task receive_message(std::shared_ptr<Group> group, Operation& o, int from, bool is_expected) {
  Pair& pair = pair_with(*group, from);
  const Index number = pair.next_received();
  std::vector<Index> numbers(most_shape_numbers);
  Number position{};
  Posts shape_received, answer, position_received;
  group->post_receive(shape_received, Channel::message_shape, from, numbers);
  if (!pair.decides_order())
    group->post_receive(position_received, Channel::place_to_receive, from, position);
  co_await shape_received;
  const Shape shape = shape_from(numbers);
  if (is_expected && shape != o.tensor.shape())
    refuse(Code::mismatch, "post_receive" + group->in_group(), to_string(o.tensor.shape()),
           fmt::format("{} from device {}", to_string(shape), group->member(from)));
  Turn turn_to_answer(pair.ordered_receives, number);
  co_await turn_to_answer;
  NoGroupIsBeingMade may_connect;
  if (pair.decides_order()) {
    co_await may_connect;
    position[0] = pair.next_position();
  }
  group->post(answer, pair.decides_order() ? Channel::place_to_send : Channel::receiver_ready, from,
              position);
  ++pair.ordered_receives;
  if (pair.decides_order()) pair.connected(*group);  // before anything else: the sender may wait there
  co_await position_received;
  Turn turn(pair.launched, position[0]);
  co_await turn;
  launch_receive(*group, pair, o, shape, is_expected);
  co_await answer;  // not earlier: the sender's GPU may have begun
}

}  // namespace

Task send(std::shared_ptr<Group> group, Operation& o, int to) {
  return send_message(std::move(group), o, to);
}

Task post_send(std::shared_ptr<Group> group, Operation& o, int to) {
  return send_message(std::move(group), o, to);
}

Task receive(std::shared_ptr<Group> group, Operation& o, int from) {
  return receive_message(std::move(group), o, from, false);
}

Task post_receive(std::shared_ptr<Group> group, Operation& o, int from) {
  return receive_message(std::move(group), o, from, true);
}

}  // namespace shard::runtime
