/// send and receive: a rendezvous. The shape goes first, as a control message that is complete only when the
/// receiver has begun to receive; the data follows at its heels, one message.
///
/// post_send and post_receive: the same two messages, of which nobody waits for the other to begin.
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

Task send_letter(Tensor t, int to, bool is_rendezvous) {
  Posts posts;
  const std::vector<Index> numbers = address_of(t.shape());
  control().post(posts, Channel::letter, to, numbers, is_rendezvous);
  transport().post_content(posts, to, transport().next_letter_to(to), TensorMemory::span(std::as_const(t)));
  co_await posts;
}

/// What a left-out send delivers: zeros of the tensor's shape.
Tensor content(const Tensor& t, bool leave_out) {
  return leave_out ? Tensor(t.shape()) : TensorMemory::share(t);
}

/// With an `expected` shape, its memory is there already.
Task receive_letter(Operation& o, int from, bool is_expected, bool leave_out) {
  Tensor& t = o.tensor;
  Posts posts;
  std::vector<Index> numbers(longest_address);
  const Index letter = transport().next_letter_from(from);
  control().post_receive(posts, Channel::letter, from, numbers);
  co_await posts;
  const Shape shape = shape_from(numbers);
  if (is_expected && shape != t.shape())
    refuse(Code::mismatch, "post_receive", to_string(t.shape()),
           fmt::format("{} from device {}", to_string(shape), from));
  if (!is_expected) t = TensorMemory::make(shape);
  transport().post_content_receive(posts, from, letter, TensorMemory::span(t));
  co_await posts;
  if (leave_out) std::ranges::fill(TensorMemory::span(t), 0.0F);
}

}  // namespace

Task send(Operation& o, int to, bool leave_out) {
  return send_letter(content(o.tensor, leave_out), to, true);
}

Task post_send(Operation& o, int to, bool leave_out) {
  return send_letter(content(o.tensor, leave_out), to, false);
}

Task receive(Operation& o, int from, bool leave_out) {
  return receive_letter(o, from, false, leave_out);
}

Task post_receive(Operation& o, int from, bool leave_out) {
  return receive_letter(o, from, true, leave_out);
}

Task send_async(Call call, Operation&, Tensor src, Tensor dst, std::optional<int> target) {
  co_await call.announce();
  call.require_agreement(MayDiffer::all());
  const std::optional<int> source = source_of(call, dst.shape());
  if (target == call.me()) {
    std::ranges::copy(TensorMemory::span(std::as_const(src)), TensorMemory::data(dst));
  } else {
    if (target) send_values(call, *target, TensorMemory::span(std::as_const(src)));
    if (source) receive_values(call, *source, TensorMemory::span(dst));
  }
  co_await call.messages();
}

}  // namespace shard::runtime
