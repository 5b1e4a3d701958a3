/// send and receive, posted or not: a rendezvous of the hosts, and then one message of NCCL.
///
/// The sender's host sends the shape. Once the receiver's host is there too, the one of lower id gives the
/// message its place in the pair's queue, and both put it there in that order. So a GPU waits in no queue for
/// a host that may be waiting for it, and messages of the two directions cannot stand crosswise.

#include <fmt/format.h>

#include "cuda/gpu_memory.hpp"
#include "cuda/nccl_communicators.hpp"
#include "cuda/success.hpp"
#include "engine/device/runtime/collective_bodies.hpp"

namespace shard::runtime {

using namespace cuda;

namespace {

using Number = std::array<Index, 1>;

Task send_letter(Operation& o, int to) {
  Pair& pair = pair_with(to);
  const Index mine = pair.next_sent();
  const std::vector<Index> address = address_of(o.tensor.shape());
  Number place{};
  Posts letter, answer, order;
  control().post(letter, Channel::letter, to, address);
  control().post_receive(answer, pair.gives_places() ? Channel::receiver : Channel::place_to_send, to, place);
  co_await letter;
  co_await answer;
  if (pair.gives_places()) {
    Turn turn(pair.placed_sends, mine);
    co_await turn;
    place[0] = pair.next_place();
    control().post(order, Channel::place_to_receive, to, place);
    ++pair.placed_sends;
    co_await order;
  }
  Turn turn(pair.queued, place[0]);
  co_await turn;
  const auto [comm, queue] = pair.wire();
  Queueing queueing(o, queue);
  ++pair.queued;
  if (o.tensor.size() == 0) co_return;
  ledger().sent(Collective::send, o.tensor.bytes());
  SHARDBOOK_CHECK(ncclSend(data_on(queue, std::as_const(o.tensor)), static_cast<std::size_t>(o.tensor.size()),
                           ncclFloat, pair.gives_places() ? 1 : 0, comm, queue));
}

/// With an `expected` shape, its memory is there already.
Task receive_letter(Operation& o, int from, bool is_expected) {
  Pair& pair = pair_with(from);
  const Index mine = pair.next_received();
  std::vector<Index> address(longest_address);
  Number place{};
  Posts letter, answer, order;
  control().post_receive(letter, Channel::letter, from, address);
  if (!pair.gives_places()) control().post_receive(order, Channel::place_to_receive, from, place);
  co_await letter;
  const Shape shape = shape_from(address);
  if (is_expected && shape != o.tensor.shape())
    refuse(Code::mismatch, "post_receive", to_string(o.tensor.shape()),
           fmt::format("{} from device {}", to_string(shape), from));
  Turn my_answer(pair.placed_receives, mine);
  co_await my_answer;
  if (pair.gives_places()) place[0] = pair.next_place();
  control().post(answer, pair.gives_places() ? Channel::place_to_send : Channel::receiver, from, place);
  ++pair.placed_receives;
  co_await answer;
  co_await order;
  Turn turn(pair.queued, place[0]);
  co_await turn;
  const auto [comm, queue] = pair.wire();
  Queueing queueing(o, queue);
  ++pair.queued;
  if (!is_expected) o.tensor = make_on(queue, shape);
  if (o.tensor.size() == 0) co_return;
  SHARDBOOK_CHECK(ncclRecv(data_on(queue, o.tensor), static_cast<std::size_t>(o.tensor.size()), ncclFloat,
                           pair.gives_places() ? 1 : 0, comm, queue));
}

}  // namespace

Task send(Operation& o, int to, bool) {
  return send_letter(o, to);
}

Task post_send(Operation& o, int to, bool) {
  return send_letter(o, to);
}

Task receive(Operation& o, int from, bool) {
  return receive_letter(o, from, false);
}

Task post_receive(Operation& o, int from, bool) {
  return receive_letter(o, from, true);
}

}  // namespace shard::runtime
