#include "emu/transport.hpp"

#include <fmt/format.h>

#include <limits>

namespace shard::emu {

namespace {

void require_success(int result, const char* what) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(result, text, &length);
  refuse(Code::lost, what, "every device to be there", std::string(text, static_cast<std::size_t>(length)));
}

/// A channel's own tag, and behind those of all channels the tags of letters' contents.
int tag_of(Channel channel) {
  return static_cast<int>(channel);
}
int tag_of(Index letter) {
  constexpr Index most_in_flight = 16384;  // MPI has tags up to 32767 at least
  return num_channels + static_cast<int>(letter % most_in_flight);
}

int message_size(std::size_t elements) {
  if (elements > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    refuse(Code::argument, "message", "fewer than 2^31 elements", fmt::to_string(elements));
  return static_cast<int>(elements);
}

}  // namespace

Transport::Transport() {
  MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(comm_, &id_);
  MPI_Comm_size(comm_, &size_);
  letters_to_.resize(static_cast<std::size_t>(size_));
  letters_from_.resize(static_cast<std::size_t>(size_));
}

Index Transport::slot(Side side, Channel channel, int peer) const {
  Index queue = static_cast<Index>(side) * num_channels + static_cast<Index>(channel);
  return 1 + queue * size_ + peer;  // slot 0 is the control plane's own
}

/// Our k-th post to a queue is met by the peer's k-th post to the other end of it.
void Transport::track(Posts& posts, MPI_Request request, Side side, Channel channel, int peer) {
  Index entries = ++ControlPlane::instance().posted(slot(side, channel, peer));
  Side other_side = side == Side::sending ? Side::receiving : Side::sending;
  posts.requests_.push_back(request);
  posts.needs_.push_back({peer, slot(other_side, channel, id_), entries});
}

void Transport::send_values(Posts& posts, Channel channel, int tag, int to, std::span<const float> values) {
  std::span<const float> sent = tampered(values);
  MPI_Request request;
  require_success(MPI_Isend(sent.data(), message_size(sent.size()), MPI_FLOAT, to, tag, comm_, &request),
                  "send");
  track(posts, request, Side::sending, channel, to);
}

void Transport::receive_values(Posts& posts, Channel channel, int tag, int from, std::span<float> values) {
  MPI_Request request;
  require_success(
      MPI_Irecv(values.data(), message_size(values.size()), MPI_FLOAT, from, tag, comm_, &request),
      "receive");
  track(posts, request, Side::receiving, channel, from);
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

void Transport::post_control(Posts& posts, Channel channel, int to, std::span<const Index> numbers,
                             bool synchronous) {
  MPI_Request request;
  auto* post = synchronous ? MPI_Issend : MPI_Isend;
  require_success(
      post(numbers.data(), message_size(numbers.size()), MPI_INT64_T, to, tag_of(channel), comm_, &request),
      "send");
  track(posts, request, Side::sending, channel, to);
}

void Transport::post_control_receive(Posts& posts, Channel channel, int from, std::span<Index> numbers) {
  MPI_Request request;
  require_success(MPI_Irecv(numbers.data(), message_size(numbers.size()), MPI_INT64_T, from, tag_of(channel),
                            comm_, &request),
                  "receive");
  track(posts, request, Side::receiving, channel, from);
}

bool Transport::test(Posts& posts) {
  for (std::size_t i = 0; i < posts.requests_.size();) {
    int done = 0;
    require_success(MPI_Test(&posts.requests_[i], &done, MPI_STATUS_IGNORE), "wait");
    if (!done) {
      ++i;
      continue;
    }
    posts.requests_[i] = posts.requests_.back();
    posts.requests_.pop_back();
    posts.needs_[i] = posts.needs_.back();
    posts.needs_.pop_back();
  }
  return posts.requests_.empty();
}

void Transport::plant(const Faults& faults) {
  faults_ = faults;
  calls_ = 0;
  messages_ = 0;
}

bool Transport::leaves_out_this_call() {
  return faults_.leave_out_call == calls_++;
}

std::span<const float> Transport::tampered(std::span<const float> values) {
  if (values.empty()) return values;
  bool is_the_one = faults_.corrupt_message == messages_++ && faults_.corrupting_device == id_;
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
  return transport().calls();
}
std::int64_t messages_sent() {
  return transport().messages();
}

}  // namespace shard::emu
