/// send and receive: a rendezvous. The sender sends the shape, in a synchronous control message, and the data, in
/// another message. The send is complete when the receive has been posted.
///
/// post_send and post_receive: the same two messages, but the shape's is not synchronous.
///
/// send_async: every device announces its target. Then each sends one message, and receives one if it is a target.

#include <fmt/format.h>

#include <algorithm>

#include "emu/messages.hpp"
#include "engine/device/runtime/collectives/collectives.hpp"
#include "engine/device/runtime/operations/tensor_memory.hpp"

namespace shard::runtime {

using namespace emu;

Task send(Call& call) {
  const std::vector<Index> numbers = numbers_of(call.tensor.shape());
  const bool is_rendezvous = call.request.function == Request::send;
  call.group().post(call.messages(), Channel::message_shape, call.peer(), numbers, is_rendezvous);
  const Index message = call.group().posted(Side::sending, Channel::message_shape, call.peer());
  send_values(call, call.peer(), TensorMemory::span(std::as_const(call.tensor)), message);
  co_await call.messages();
}

Task receive(Call& call) {
  Tensor& t = call.tensor;
  const int from = call.peer();
  std::vector<Index> numbers(most_shape_numbers);
  call.group().post_receive(call.messages(), Channel::message_shape, from, numbers);
  const Index message = call.group().posted(Side::receiving, Channel::message_shape, from);
  co_await call.messages();
  const Shape shape = shape_from(numbers);
  if (call.is_posted() && shape != t.shape())
    refuse(Code::mismatch, call.name, to_string(t.shape()),
           fmt::format("{} from device {}", to_string(shape), call.group().member(from)));
  if (!call.is_posted()) t = TensorMemory::make(shape);
  receive_values(call, from, TensorMemory::span(t), message);
  co_await call.messages();
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
  if (source) require_same_shape(call, *source, dst.shape());
  if (target == call.me()) {
    std::ranges::copy(TensorMemory::span(src), TensorMemory::span(dst).begin());
  } else {
    if (target) send_values(call, *target, TensorMemory::span(src));
    if (source) receive_values(call, *source, TensorMemory::span(dst));
  }
  co_await call.messages();
}

}  // namespace shard::runtime
