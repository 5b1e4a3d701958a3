#include "engine/device/runtime/group.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "engine/device/runtime/disagreement.hpp"

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

std::shared_ptr<Group> Group::world() {
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  int size = 1;
  MPI_Comm_size(comm, &size);
  std::vector<int> members(static_cast<std::size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  std::shared_ptr<Group> all(new Group(comm, 0, std::move(members)));
  MPI_Comm_dup(MPI_COMM_WORLD, &all->comm_of_end_);
  return all;
}

std::shared_ptr<Group> Group::part(Index id, const std::vector<int>& places) const {
  MPI_Group all, some;
  MPI_Comm comm;
  MPI_Comm_group(comm_, &all);
  MPI_Group_incl(all, static_cast<int>(places.size()), places.data(), &some);
  require_success(MPI_Comm_create_group(comm_, some, 0, &comm), "split");
  MPI_Group_free(&some);
  MPI_Group_free(&all);
  std::vector<int> members;
  for (int place : places) members.push_back(member(place));
  return std::shared_ptr<Group>(new Group(comm, id, std::move(members)));
}

Group::Group(MPI_Comm comm, Index id, std::vector<int> members)
    : comm_(comm), id_(id), members_(std::move(members)) {
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(comm_, &place_);
  const std::size_t channels = 2 * num_channels * members_.size();
  posted_.resize(end_slot + 1 + channels);
  ControlPlane::instance().add(id_, posted_);
}

Group::~Group() {
  data_plane.reset();
  ControlPlane::instance().remove(id_);
  int is_over = 0;
  MPI_Finalized(&is_over);
  if (is_over) return;
  MPI_Comm_free(&comm_);
  if (comm_of_end_ != MPI_COMM_NULL) MPI_Comm_free(&comm_of_end_);
}

std::string Group::in_group() const {
  return id_ == 0 ? "" : fmt::format(" in group {{{}}}", fmt::join(members_, ", "));
}

Index Group::slot(Side side, Channel channel, int peer) const {
  const Index row = static_cast<Index>(side) * num_channels + static_cast<Index>(channel);
  return static_cast<Index>(end_slot) + 1 + row * num_devices() + peer;
}

int Group::tag(Channel channel) const {
  constexpr int of_calls = static_cast<int>(first_of_messages);
  constexpr int calls_apart = first_free_tag / of_calls - 1;  // calls whose messages have tags of their own
  const int c = static_cast<int>(channel);
  if (c >= of_calls) return of_calls * calls_apart + c - of_calls;
  return c + of_calls * static_cast<int>(calls_begun() % calls_apart);
}

/// Our k-th post to a channel is met by the peer's k-th post to the other end of it. Posts of a collective
/// call are counted in that call: what a call that has failed left out, later ones do not miss.
void Group::track(Posts& posts, MPI_Request request, Side side, Channel channel, int peer) {
  Index& posted = posted_[static_cast<std::size_t>(slot(side, channel, peer))];
  if (channel < first_of_messages) posted = std::max(posted, calls_begun() << 32);
  const Index entries = ++posted;
  const Side other_side = side == Side::sending ? Side::receiving : Side::sending;
  posts.requests_.push_back({request, side, &posted});
  posts.needs_.push_back({member(peer), id_, slot(other_side, channel, place_), entries});
}

void Group::post(Posts& posts, Channel channel, int to, std::span<const Index> numbers, bool synchronous) {
  MPI_Request request;
  auto* send = synchronous ? MPI_Issend : MPI_Isend;
  require_success(
      send(numbers.data(), message_size(numbers.size()), MPI_INT64_T, to, tag(channel), comm_, &request),
      "send");
  track(posts, request, Side::sending, channel, to);
}

void Group::post_receive(Posts& posts, Channel channel, int from, std::span<Index> numbers) {
  MPI_Request request;
  require_success(MPI_Irecv(numbers.data(), message_size(numbers.size()), MPI_INT64_T, from, tag(channel),
                            comm_, &request),
                  "receive");
  track(posts, request, Side::receiving, channel, from);
}

void Group::wait_for(const std::string& what, MPI_Request request, std::size_t slot) {
  const Index entered = ++posted_[slot];
  Blocked::Needs everybody;
  for (int d : members_)
    if (d != member(place_)) everybody.push_back({d, id_, static_cast<Index>(slot), entered});
  ControlPlane::instance().wait_for(what + in_group(), std::move(everybody), [&request] {
    int done = 0;
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  });
}

std::vector<Index> Group::all_gather(const std::string& what, Index mine) {
  if (num_devices() == 1) return {mine};
  std::vector<Index> all(members_.size());
  MPI_Request request;
  MPI_Iallgather(&mine, 1, MPI_INT64_T, all.data(), 1, MPI_INT64_T, comm_, &request);
  wait_for(what, request);
  return all;
}

Index Group::meet_at_end(Index exit_code) {
  Index largest = 0;
  MPI_Request request;
  MPI_Iallreduce(&exit_code, &largest, 1, MPI_INT64_T, MPI_MAX, comm_of_end_, &request);
  wait_for("the end of the program", request, end_slot);
  return largest;
}

std::vector<Index> Group::exchange_at_end(const std::vector<Index>& numbers_for_each) {
  std::vector<Index> of_each(members_.size());
  MPI_Request request;
  MPI_Ialltoall(numbers_for_each.data(), 1, MPI_INT64_T, of_each.data(), 1, MPI_INT64_T, comm_of_end_,
                &request);
  wait_for("the end of the program", request, end_slot);
  return of_each;
}

void Group::require_same_gather(const Header& mine) {
  const Index hash = fingerprint(mine, MayDiffer::nothing());
  const std::vector<Index> hashes = all_gather(mine.what, hash);
  if (std::ranges::count(hashes, hash) == num_devices()) return;
  const std::vector<Index> numbers = claim_of(*this, mine).as_numbers();
  std::vector<Index> all(numbers.size() * members_.size());
  MPI_Request request;
  MPI_Iallgather(numbers.data(), message_size(numbers.size()), MPI_INT64_T, all.data(),
                 message_size(numbers.size()), MPI_INT64_T, comm_, &request);
  wait_for(mine.what, request);
  std::vector<Claim> claims;
  for (auto at = all.begin(); at != all.end(); at += static_cast<std::ptrdiff_t>(numbers.size()))
    claims.push_back(Claim::from({at, at + static_cast<std::ptrdiff_t>(numbers.size())}));
  throw_disagreement(*this, claims);
}

std::vector<std::string> Group::gather(const Header& call, const std::string& mine, bool for_all) {
  require_same_gather(call);
  const std::vector<Index> sizes = all_gather(call.what, static_cast<Index>(mine.size()));
  const Index longest = std::ranges::max(sizes);
  // MPI counts the bytes of all devices in an int: longer texts come in pieces.
  const Index piece = std::numeric_limits<int>::max() / num_devices();
  std::vector<std::string> texts(for_all || place_ == 0 ? members_.size() : 0);
  for (Index begin = 0; begin < longest; begin += piece) {
    std::vector<int> counts, offsets;
    int end = 0;
    for (Index size : sizes) {
      counts.push_back(static_cast<int>(std::clamp<Index>(size - begin, 0, piece)));
      offsets.push_back(std::exchange(end, end + counts.back()));
    }
    std::string all(static_cast<std::size_t>(texts.empty() ? 0 : end), '\0');
    const int count = counts[static_cast<std::size_t>(place_)];
    const char* from = mine.data() + (count > 0 ? begin : 0);
    MPI_Request request;
    if (for_all)
      MPI_Iallgatherv(from, count, MPI_BYTE, all.data(), counts.data(), offsets.data(), MPI_BYTE, comm_,
                      &request);
    else
      MPI_Igatherv(from, count, MPI_BYTE, all.data(), counts.data(), offsets.data(), MPI_BYTE, 0, comm_,
                   &request);
    wait_for(call.what, request);
    for (std::size_t d = 0; d < texts.size(); ++d)
      texts[d].append(all, static_cast<std::size_t>(offsets[d]), static_cast<std::size_t>(counts[d]));
  }
  return texts;
}

Posts::~Posts() {
  int is_over = 0;
  MPI_Finalized(&is_over);
  if (is_over) return;
  for (auto& [request, side, posted] : requests_) {
    if (request == MPI_REQUEST_NULL) continue;  // it has failed
    if (side == Side::receiving) MPI_Cancel(&request), --*posted;
    MPI_Request_free(&request);
  }
}

bool Posts::test() {
  for (std::size_t i = 0; i < requests_.size();) {
    int done = 0;
    require_success(MPI_Test(&requests_[i].request, &done, MPI_STATUS_IGNORE), "wait");
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

std::string devices_text(std::vector<int> devices) {
  std::ranges::sort(devices);
  std::vector<std::string> runs;
  for (std::size_t first = 0, next; first < devices.size(); first = next) {
    for (next = first + 1; next < devices.size() && devices[next] == devices[next - 1] + 1;) ++next;
    if (next - first > 2)
      runs.push_back(fmt::format("{} to {}", devices[first], devices[next - 1]));
    else
      for (std::size_t i = first; i < next; ++i) runs.push_back(fmt::to_string(devices[i]));
  }
  return fmt::format("device{} {}", devices.size() == 1 ? "" : "s", fmt::join(runs, ", "));
}

}  // namespace shard::runtime
