#include "emu/messages.hpp"

#include "emu/operations/arrays.hpp"
#include "engine/device/runtime/notes.hpp"
#include "engine/device/this_device.hpp"

namespace shard::emu {

namespace {

struct Filter {
  MessageFilter* filter = nullptr;
};

/// Numbered messages have tags beyond those of all channels.
int tag_of(const Group& group, Index message) {
  constexpr Index most_in_flight = 16384;  // MPI has tags up to 32767 at least
  if (message == 0) return group.tag(Channel::data);
  return runtime::first_free_tag + static_cast<int>(message % most_in_flight);
}

Channel channel_of(Index message) {
  return message == 0 ? Channel::data : Channel::message_data;
}

void post(Call& call, int to, std::span<const float> values, Index message) {
  Group& group = call.group();
  runtime::note_sent(call.request, group.id(), call.request.collective(),
                     {1, static_cast<Index>(values.size_bytes())}, group.member(to));
  group.track(call.messages(), group.wire().send(to, tag_of(group, message), values), Side::sending,
              channel_of(message), to);
}

void post_receive(Call& call, int from, std::span<float> values, Index message) {
  Group& group = call.group();
  group.track(call.messages(), group.wire().receive(from, tag_of(group, message), values), Side::receiving,
              channel_of(message), from);
}

}  // namespace

void set_message_filter(MessageFilter* new_filter) {
  device().state<Filter>().filter = new_filter;
}

void send_values(Call& call, int to, std::span<const float> values, Index message) {
  if (values.empty()) return;
  MessageFilter* filter = device().state<Filter>().filter;
  post(call, to, filter == nullptr ? values : filter->passed(values), message);
}

void receive_values(Call& call, int from, std::span<float> values, Index message) {
  if (!values.empty()) post_receive(call, from, values, message);
}

void send_token(Call& call, int to) {
  post(call, to, {}, 0);
}

void receive_token(Call& call, int from) {
  post_receive(call, from, {}, 0);
}

void combine(std::span<float> accumulator, std::span<const float> addend, ReduceOp op) {
  auto a = flat(accumulator);
  auto b = flat(addend);
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      xt::noalias(a) += b;
      break;
    case ReduceOp::max:
      xt::noalias(a) = xt::maximum(a, b);
      break;
    case ReduceOp::min:
      xt::noalias(a) = xt::minimum(a, b);
      break;
    case ReduceOp::prod:
      xt::noalias(a) *= b;
      break;
  }
}

void finish_average(std::span<float> sum, ReduceOp op, int devices) {
  if (op == ReduceOp::avg) xt::noalias(flat(sum)) /= static_cast<float>(devices);
}

}  // namespace shard::emu
