#include "emu/transport.hpp"

#include "engine/device/this_device.hpp"

namespace shard::emu {

namespace {

struct Filter {
  MessageFilter* filter = nullptr;
};

/// Messages between two devices have tags of their own, behind those of all channels.
int tag_of(Index message) {
  constexpr Index most_in_flight = 16384;  // MPI has tags up to 32767 at least
  return runtime::first_free_tag + static_cast<int>(message % most_in_flight);
}

void send_values(Group& group, Posts& posts, Channel channel, int tag, int to,
                 std::span<const float> values) {
  MessageFilter* filter = device().part<Filter>().filter;
  if (filter != nullptr && !values.empty()) values = filter->passed(values);
  group.track(posts, group.wire().send(to, tag, values), Side::sending, channel, to);
}

void receive_values(Group& group, Posts& posts, Channel channel, int tag, int from, std::span<float> values) {
  group.track(posts, group.wire().receive(from, tag, values), Side::receiving, channel, from);
}

}  // namespace

void set_message_filter(MessageFilter* new_filter) {
  device().part<Filter>().filter = new_filter;
}

Transport::Transport(const Group& group)
    : messages_to_(static_cast<std::size_t>(group.num_devices())), messages_from_(messages_to_.size()) {}

void Transport::post_send(Group& group, Posts& posts, Collective call, int to,
                          std::span<const float> values) {
  if (values.empty()) return;
  ledger().sent(group.id(), call, {1, static_cast<Index>(values.size_bytes())});
  send_values(group, posts, Channel::data, group.tag(Channel::data), to, values);
}

void Transport::post_receive(Group& group, Posts& posts, int from, std::span<float> values) {
  if (!values.empty()) receive_values(group, posts, Channel::data, group.tag(Channel::data), from, values);
}

void Transport::post_token(Group& group, Posts& posts, Collective call, int to) {
  ledger().sent(group.id(), call, {1, 0});
  send_values(group, posts, Channel::data, group.tag(Channel::data), to, {});
}

void Transport::post_token_receive(Group& group, Posts& posts, int from) {
  receive_values(group, posts, Channel::data, group.tag(Channel::data), from, {});
}

void Transport::post_content(Group& group, Posts& posts, int to, Index message,
                             std::span<const float> values) {
  if (values.empty()) return;
  ledger().sent(group.id(), Collective::send, {1, static_cast<Index>(values.size_bytes())});
  send_values(group, posts, Channel::message_data, tag_of(message), to, values);
}

void Transport::post_content_receive(Group& group, Posts& posts, int from, Index message,
                                     std::span<float> values) {
  if (!values.empty()) receive_values(group, posts, Channel::message_data, tag_of(message), from, values);
}

Transport& transport(Group& group) {
  return static_cast<Transport&>(*group.data_plane);
}

}  // namespace shard::emu
