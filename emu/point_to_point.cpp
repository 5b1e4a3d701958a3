/// send and receive: a rendezvous. The shape goes first, as a control message that is complete only when the
/// receiver has begun to receive; the data follows at its heels, one message.
///
/// post_send and post_receive: the same two messages, of which nobody waits for the other to begin.
///
/// send_async: every device says whom it targets; then each sends one message, and receives one if it is a target.

#include <fmt/format.h>

#include <algorithm>

#include "emu/collectives.hpp"

namespace shard::emu {

namespace {

constexpr std::size_t longest_address = 1 + Header::most_axes;

/// A letter's shape: the rank, the extents.
std::vector<Index> address(const Shape& shape) {
  std::vector<Index> numbers = {static_cast<Index>(shape.size())};
  numbers.insert(numbers.end(), shape.begin(), shape.end());
  return numbers;
}

Shape shape_from(const std::vector<Index>& numbers) {
  return Shape(numbers.begin() + 1, numbers.begin() + 1 + numbers[0]);
}

Task send_letter(Tensor t, int to, bool is_rendezvous) {
  Posts posts;
  const std::vector<Index> numbers = address(t.shape());
  transport().post_control(posts, Channel::letter, to, numbers, is_rendezvous);
  transport().post_content(posts, to, transport().next_letter_to(to), Backend::span(std::as_const(t)));
  co_await posts;
}

/// What a left-out send delivers: zeros of the tensor's shape.
Tensor content(const Tensor& t, bool leave_out) {
  return leave_out ? Tensor(t.shape()) : Backend::share(t);
}

}  // namespace

Task send(const Tensor& t, int to, bool leave_out) {
  return send_letter(content(t, leave_out), to, true);
}

Task post_send(const Tensor& t, int to, bool leave_out) {
  return send_letter(content(t, leave_out), to, false);
}

Task receive(Tensor& t, int from, bool leave_out) {
  Posts posts;
  std::vector<Index> numbers(longest_address);
  const Index letter = transport().next_letter_from(from);
  transport().post_control_receive(posts, Channel::letter, from, numbers);
  co_await posts;
  t = Backend::make(shape_from(numbers));
  transport().post_content_receive(posts, from, letter, Backend::span(t));
  co_await posts;
  if (leave_out) std::ranges::fill(Backend::span(t), 0.0F);
}

Task post_receive(Tensor& t, int from, bool leave_out) {
  Posts posts;
  std::vector<Index> numbers(longest_address);
  const Index letter = transport().next_letter_from(from);
  transport().post_control_receive(posts, Channel::letter, from, numbers);
  co_await posts;
  if (shape_from(numbers) != t.shape())
    refuse(Code::mismatch, "post_receive", to_string(t.shape()),
           fmt::format("{} from device {}", to_string(shape_from(numbers)), from));
  transport().post_content_receive(posts, from, letter, Backend::span(t));
  co_await posts;
  if (leave_out) std::ranges::fill(Backend::span(t), 0.0F);
}

Task send_async(Call call, Tensor src, Tensor dst, std::optional<int> target) {
  co_await call.announce();
  call.require_agreement(MayDiffer::all());
  std::optional<int> source;
  for (int d = 0; d < call.devices(); ++d) {
    Index theirs = call.said_by(d).peer;
    for (int e = 0; e < d; ++e)
      if (theirs >= 0 && call.said_by(e).peer == theirs)
        refuse(Code::mismatch, "send_async", "distinct targets",
               fmt::format("device {} as the target of both {} and {}", theirs, e, d));
    if (theirs == call.me()) source = d;
  }
  if (source && call.said_by(*source).shape != dst.shape())
    refuse(Code::mismatch, "send_async", fmt::format("{} as my dst", to_string(dst.shape())),
           fmt::format("{} from device {}", to_string(call.said_by(*source).shape), *source));
  if (target == call.me()) {
    std::ranges::copy(Backend::span(std::as_const(src)), Backend::data(dst));
  } else {
    if (target) call.send(*target, Backend::span(std::as_const(src)));
    if (source) call.receive(*source, Backend::span(dst));
  }
  co_await call.messages();
}

Task exchange(Call call, std::vector<Index>& numbers) {
  co_await call.announce();
  call.require_agreement(MayDiffer::all());
  for (int d = 0; d < call.devices(); ++d) numbers.push_back(call.said_by(d).for_you);
}

}  // namespace shard::emu
