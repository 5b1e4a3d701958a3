#include "emu/transport.hpp"

namespace shard::emu {

using runtime::message_size;
using runtime::require_success;

namespace {

/// A channel's own tag, and behind those of all channels the tags of letters' contents.
int tag_of(Channel channel) {
  return static_cast<int>(channel);
}
int tag_of(Index letter) {
  constexpr Index most_in_flight = 16384;  // MPI has tags up to 32767 at least
  return runtime::num_channels + static_cast<int>(letter % most_in_flight);
}

}  // namespace

Transport::Transport()
    : letters_to_(static_cast<std::size_t>(control().num_devices())), letters_from_(letters_to_.size()) {}

void Transport::send_values(Posts& posts, Channel channel, int tag, int to, std::span<const float> values) {
  std::span<const float> sent = tampered(values);
  MPI_Request request;
  require_success(
      MPI_Isend(sent.data(), message_size(sent.size()), MPI_FLOAT, to, tag, control().comm(), &request),
      "send");
  control().track(posts, request, Side::sending, channel, to);
}

void Transport::receive_values(Posts& posts, Channel channel, int tag, int from, std::span<float> values) {
  MPI_Request request;
  require_success(
      MPI_Irecv(values.data(), message_size(values.size()), MPI_FLOAT, from, tag, control().comm(), &request),
      "receive");
  control().track(posts, request, Side::receiving, channel, from);
}

void Transport::post_send(Posts& posts, Collective call, int to, std::span<const float> values) {
  if (values.empty()) return;
  ledger().sent(call, static_cast<std::int64_t>(values.size_bytes()));
  send_values(posts, Channel::data, tag_of(Channel::data), to, values);
}

void Transport::post_receive(Posts& posts, int from, std::span<float> values) {
  if (!values.empty()) receive_values(posts, Channel::data, tag_of(Channel::data), from, values);
}

void Transport::post_token(Posts& posts, Collective call, int to) {
  ledger().sent(call, 0);
  send_values(posts, Channel::data, tag_of(Channel::data), to, {});
}

void Transport::post_token_receive(Posts& posts, int from) {
  receive_values(posts, Channel::data, tag_of(Channel::data), from, {});
}

void Transport::post_content(Posts& posts, int to, Index letter, std::span<const float> values) {
  if (values.empty()) return;
  ledger().sent(Collective::send, static_cast<std::int64_t>(values.size_bytes()));
  send_values(posts, Channel::content, tag_of(letter), to, values);
}

void Transport::post_content_receive(Posts& posts, int from, Index letter, std::span<float> values) {
  if (!values.empty()) receive_values(posts, Channel::content, tag_of(letter), from, values);
}

void Transport::plant(const Faults& faults) {
  faults_ = faults;
  control().count_calls_anew();
  messages_ = 0;
}

std::span<const float> Transport::tampered(std::span<const float> values) {
  if (values.empty()) return values;
  bool is_the_one =
      faults_.corrupt_message == messages_++ && faults_.corrupting_device == control().device_id();
  if (!is_the_one) return values;
  corrupted_.emplace_back(values.begin(), values.end());
  corrupted_.back()[0] += 1.0F;
  return corrupted_.back();
}

Transport& transport() {
  static Transport instance;
  return instance;
}

void plant_faults(const Faults& faults) {
  transport().plant(faults);
}
std::int64_t calls_made() {
  return control().calls();
}
std::int64_t messages_sent() {
  return transport().messages();
}

}  // namespace shard::emu
