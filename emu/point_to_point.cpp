/// send and receive: a rendezvous. The shape goes first, as a control message that is complete only when the
/// receiver has begun to receive; the data follows at its heels, one message.
///
/// send_async: every device says whom it targets; then each sends one message, and receives one if it is a target.

#include <fmt/format.h>

#include <algorithm>

#include "emu/collectives.hpp"

namespace shard::emu {

namespace {

/// A letter's shape: whether its data was left out, the rank, the extents.
std::vector<Index> address(const Shape& shape, bool leave_out) {
  std::vector<Index> numbers = {leave_out ? 1 : 0, static_cast<Index>(shape.size())};
  numbers.insert(numbers.end(), shape.begin(), shape.end());
  return numbers;
}

}  // namespace

Task send(const Tensor& t, int to, bool leave_out) {
  Posts posts;
  const std::vector<Index> numbers = address(t.shape(), leave_out);
  transport().post_control(posts, Channel::letter, to, numbers, true);
  if (!leave_out) transport().post_letter(posts, to, Backend::span(t));
  co_await posts;
}

Task receive(Tensor& t, int from, bool leave_out) {
  Posts posts;
  std::vector<Index> numbers(2 + Header::most_axes);
  transport().post_control_receive(posts, Channel::letter, from, numbers);
  co_await posts;
  t = Backend::make(Shape(numbers.begin() + 2, numbers.begin() + 2 + numbers[1]));
  bool was_left_out = numbers[0] != 0;
  if (!was_left_out) transport().post_letter_receive(posts, from, Backend::span(t));
  co_await posts;
  if (was_left_out || leave_out) std::ranges::fill(Backend::span(t), 0.0F);
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
