/// send and receive: a rendezvous. The sender first sends the shape, in a control message that is complete
/// only when the receiver has begun to receive. Then it sends the data, in one message.
///
/// post_send and post_receive: the same two messages, but neither device waits for the other to begin.
///
/// send_async: every device says whom it targets; then each sends one message, and receives one if it is a
/// target.

#include <fmt/format.h>

#include <algorithm>

#include "emu/collective_messages.hpp"
#include "emu/host_memory.hpp"
#include "engine/device/runtime/collective_bodies.hpp"

namespace shard::runtime {

using namespace emu;

namespace {

Task send_message(std::shared_ptr<Group> group, Tensor t, int to, bool is_rendezvous) {
  Posts posts;
  const std::vector<Index> numbers = numbers_of(t.shape());
  Transport& data = transport(*group);
  group->post(posts, Channel::message_shape, to, numbers, is_rendezvous);
  data.post_content(*group, posts, to, data.next_message_to(to), TensorMemory::span(std::as_const(t)));
  co_await posts;
}

/// If a shape is `expected`, the memory for it exists already.
Task receive_message(std::shared_ptr<Group> group, Operation& o, int from, bool is_expected) {
  Tensor& t = o.tensor;
  Posts posts;
  std::vector<Index> numbers(most_shape_numbers);
  Transport& data = transport(*group);
  const Index message = data.next_message_from(from);
  group->post_receive(posts, Channel::message_shape, from, numbers);
  co_await posts;
  const Shape shape = shape_from(numbers);
  if (is_expected && shape != t.shape())
    refuse(Code::mismatch, "post_receive" + group->in_group(), to_string(t.shape()),
           fmt::format("{} from device {}", to_string(shape), group->member(from)));
  if (!is_expected) t = TensorMemory::make(shape);
  data.post_content_receive(*group, posts, from, message, TensorMemory::span(t));
  co_await posts;
}

}  // namespace

Task send(std::shared_ptr<Group> group, Operation& o, int to) {
  return send_message(std::move(group), TensorMemory::share(o.tensor), to, true);
}

Task post_send(std::shared_ptr<Group> group, Operation& o, int to) {
  return send_message(std::move(group), TensorMemory::share(o.tensor), to, false);
}

Task receive(std::shared_ptr<Group> group, Operation& o, int from) {
  return receive_message(std::move(group), o, from, false);
}

Task post_receive(std::shared_ptr<Group> group, Operation& o, int from) {
  return receive_message(std::move(group), o, from, true);
}

Task send_async(Call call, Operation&, Tensor src, Tensor dst, std::optional<int> target) {
  call.announce(MayDiffer::all());
  co_await call.agreement();
  const std::optional<int> source = source_of(call);
  call.exchange_shapes(src.shape(), target, source);
  co_await call.messages();
  if (source) require_same_shape(call, *source, dst.shape());
  if (target == call.me()) {
    std::ranges::copy(TensorMemory::span(std::as_const(src)), TensorMemory::data(dst));
  } else {
    if (target) send_values(call, *target, TensorMemory::span(std::as_const(src)));
    if (source) receive_values(call, *source, TensorMemory::span(dst));
  }
  co_await call.messages();
}

}  // namespace shard::runtime
