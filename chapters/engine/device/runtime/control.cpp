#include "engine/device/runtime/control.hpp"

#include <fmt/format.h>

#include <limits>

namespace shard::runtime {

void require_success(int result, const char* what) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(result, text, &length);
  refuse(Code::lost, what, "every device to be there", std::string(text, static_cast<std::size_t>(length)));
}

int message_size(std::size_t elements) {
  if (elements > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    refuse(Code::argument, "message", "fewer than 2^31 elements", fmt::to_string(elements));
  return static_cast<int>(elements);
}

Control::Control() {
  MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(comm_, &id_);
  MPI_Comm_size(comm_, &size_);
}

Index Control::slot(Side side, Channel channel, int peer) const {
  Index queue = static_cast<Index>(side) * num_channels + static_cast<Index>(channel);
  return 1 + queue * size_ + peer;  // slot 0 is the control plane's own
}

/// Our k-th post to a queue is met by the peer's k-th post to the other end of it.
void Control::track(Posts& posts, MPI_Request request, Side side, Channel channel, int peer) {
  Index entries = ++ControlPlane::instance().posted(slot(side, channel, peer));
  Side other_side = side == Side::sending ? Side::receiving : Side::sending;
  posts.requests_.push_back(request);
  posts.needs_.push_back({peer, slot(other_side, channel, id_), entries});
}

void Control::post(Posts& posts, Channel channel, int to, std::span<const Index> numbers, bool synchronous) {
  MPI_Request request;
  auto* send = synchronous ? MPI_Issend : MPI_Isend;
  require_success(send(numbers.data(), message_size(numbers.size()), MPI_INT64_T, to,
                       static_cast<int>(channel), comm_, &request),
                  "send");
  track(posts, request, Side::sending, channel, to);
}

void Control::post_receive(Posts& posts, Channel channel, int from, std::span<Index> numbers) {
  MPI_Request request;
  require_success(MPI_Irecv(numbers.data(), message_size(numbers.size()), MPI_INT64_T, from,
                            static_cast<int>(channel), comm_, &request),
                  "receive");
  track(posts, request, Side::receiving, channel, from);
}

bool Posts::test() {
  for (std::size_t i = 0; i < requests_.size();) {
    int done = 0;
    require_success(MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE), "wait");
    if (!done) {
      ++i;
      continue;
    }
    requests_[i] = requests_.back();
    requests_.pop_back();
    needs_[i] = needs_.back();
    needs_.pop_back();
  }
  return requests_.empty();
}

Control& control() {
  static Control instance;
  return instance;
}

}  // namespace shard::runtime
