#include "engine/device/runtime/groups/group.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "engine/device/runtime/groups/agreement.hpp"
#include "engine/device/this_device.hpp"

namespace shard::runtime {

namespace {

/// The memory that a collective reads and writes.
template <class T>
struct Exchanged {
  T mine, all;
};
using Numbers = Exchanged<std::vector<Index>>;
using Texts = Exchanged<std::string>;

std::shared_ptr<Numbers> numbers_of(std::vector<Index> mine, std::size_t all) {
  return std::make_shared<Numbers>(Numbers{std::move(mine), std::vector<Index>(all)});
}

/// Collectives whose wait has ended in an error, and their memory: MPI cannot cancel a collective.
struct Abandoned {
  std::vector<std::pair<Started, std::shared_ptr<void>>> all;
};

}  // namespace

std::shared_ptr<Group> Group::world() {
  std::unique_ptr<Wire> wire = wire_of_world();
  std::vector<int> members(static_cast<std::size_t>(wire->size()));
  std::iota(members.begin(), members.end(), 0);
  std::shared_ptr<Group> all(new Group(std::move(wire), 0, std::move(members)));
  all->wire_of_end_ = wire_of_world();
  return all;
}

std::shared_ptr<Group> Group::part(Index id, const std::vector<int>& places) const {
  std::vector<int> members;
  for (int place : places) members.push_back(member(place));
  return std::shared_ptr<Group>(new Group(wire_->part(id, places), id, std::move(members)));
}

Group::Group(std::unique_ptr<Wire> wire, Index id, std::vector<int> members)
    : wire_(std::move(wire)),
      id_(id),
      members_(std::move(members)),
      in_group_(id_ == 0 ? "" : fmt::format(" in group {{{}}}", fmt::join(members_, ", "))) {
  ControlPlane::instance().add(id_, posted_);
}

Group::~Group() {
  data_plane.reset();
  ControlPlane::instance().remove(id_);
}

Index Group::slot(Side side, Channel channel, int peer) const {
  const Index row = static_cast<Index>(side) * num_channels + static_cast<Index>(channel);
  return end_slot + 1 + row * num_devices() + peer;
}

int Group::tag(Channel channel) const {
  constexpr int of_calls = static_cast<int>(first_of_messages);
  constexpr int calls_apart = first_free_tag / of_calls - 1;  // tags repeat after this number of calls
  const int c = static_cast<int>(channel);
  if (c >= of_calls) return of_calls * calls_apart + c - of_calls;
  return c + of_calls * static_cast<int>(calls_begun() % calls_apart);
}

/// The k-th post on a channel matches the peer's k-th post on the channel's other side. In each collective, counts
/// start at the call's number times 2^32, so they stay equal on both sides after a failed call.
void Group::track(Posts& posts, Started request, Side side, Channel channel, int peer) {
  Counted& counted = counted_last_[static_cast<std::size_t>(side)];
  const Index here = slot(side, channel, peer);
  if (counted.slot != here) counted = {here, &posted_[here]};
  Index& posted = *counted.posts;
  if (channel < first_of_messages) posted = std::max(posted, calls_begun() << 32);
  const Index count = ++posted;
  if (request == nullptr) return;
  const Side other_side = side == Side::sending ? Side::receiving : Side::sending;
  posts.requests_.push_back({std::move(request), &posted});
  posts.dependencies_.push_back({member(peer), id_, slot(other_side, channel, device_id()), count});
}

void Group::post(Posts& posts, Channel channel, int to, std::span<const Index> numbers, bool synchronous) {
  track(posts, wire_->send(to, tag(channel), numbers, synchronous), Side::sending, channel, to);
}

void Group::post_receive(Posts& posts, Channel channel, int from, std::span<Index> numbers) {
  track(posts, wire_->receive(from, tag(channel), numbers), Side::receiving, channel, from);
}

void Group::wait_for(const std::string& what, Started request, std::shared_ptr<void> memory, Index slot) {
  const Index entered = ++posted_[slot];
  auto everybody = [&] {
    Blocked::Dependencies dependencies;
    for (int d : members_)
      if (d != this_device()) dependencies.push_back({d, id_, slot, entered});
    return dependencies;
  };
  try {
    ControlPlane::instance().wait_for(what + in_group(), everybody, [&request] { return request->test(); });
  } catch (...) {
    device().part<Abandoned>().all.emplace_back(std::move(request), std::move(memory));
    throw;
  }
}

std::vector<Index> Group::all_gather(const std::string& what, Index mine) {
  if (num_devices() == 1) return {mine};
  const auto numbers = numbers_of({mine}, members_.size());
  wait_for(what, wire_->all_gather(numbers->mine, numbers->all), numbers);
  return numbers->all;
}

Index Group::max_at_end(Index exit_code) {
  const auto numbers = numbers_of({exit_code}, members_.size());
  wait_for("the end of the program", wire_of_end_->all_gather(numbers->mine, numbers->all), numbers,
           end_slot);
  return std::ranges::max(numbers->all);
}

std::vector<Index> Group::exchange_at_end(const std::vector<Index>& numbers_for_each) {
  const auto numbers = numbers_of(numbers_for_each, members_.size());
  wait_for("the end of the program", wire_of_end_->all_to_all(numbers->mine, numbers->all), numbers,
           end_slot);
  return numbers->all;
}

void Group::require_same_gather(const Request& mine) {
  const Index hash = fingerprint(mine, MayDiffer::nothing());
  const std::vector<Index> hashes = all_gather(mine.name(), hash);
  if (std::ranges::count(hashes, hash) == num_devices()) return;
  const std::vector<Index> claim = claim_of(*this, mine).as_numbers();
  const auto size = static_cast<std::ptrdiff_t>(claim.size());
  const auto numbers = numbers_of(claim, claim.size() * members_.size());
  wait_for(mine.name(), wire_->all_gather(numbers->mine, numbers->all), numbers);
  std::vector<Claim> claims;
  for (auto at = numbers->all.begin(); at != numbers->all.end(); at += size)
    claims.push_back(Claim::from({at, at + size}));
  throw_disagreement(*this, claims);
}

std::vector<std::string> Group::gather(const Request& request) {
  const std::string& mine = request.text;
  const std::string name = request.name();
  const bool for_all = request.function == Request::gather_for_all;
  require_same_gather(request);
  const std::vector<Index> sizes = all_gather(name, static_cast<Index>(mine.size()));
  const Index longest = std::ranges::max(sizes);
  // MPI counts the bytes of all devices in an int, so longer texts are sent in pieces.
  const Index piece = std::numeric_limits<int>::max() / num_devices();
  std::vector<std::string> texts(for_all || device_id() == 0 ? members_.size() : 0);
  for (Index begin = 0; begin < longest; begin += piece) {
    std::vector<int> lengths;
    for (Index size : sizes) lengths.push_back(static_cast<int>(std::clamp<Index>(size - begin, 0, piece)));
    const auto memory = std::make_shared<Texts>();
    memory->mine =
        mine.substr(std::min(static_cast<std::size_t>(begin), mine.size()), static_cast<std::size_t>(piece));
    if (!texts.empty()) memory->all.resize(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}));
    wait_for(name, wire_->gather(memory->mine, lengths, memory->all, for_all), memory);
    for (std::size_t d = 0, at = 0; d < texts.size(); at += static_cast<std::size_t>(lengths[d++]))
      texts[d].append(memory->all, at, static_cast<std::size_t>(lengths[d]));
  }
  return texts;
}

void Posts::give_up() {
  for (auto& [request, posted] : requests_)
    if (request->give_up()) --*posted;
  requests_.clear();
  dependencies_.clear();
}

bool Posts::test() {
  for (std::size_t i = 0; i < requests_.size();) {
    if (!requests_[i].request->test()) {
      ++i;
      continue;
    }
    requests_[i] = std::move(requests_.back());
    requests_.pop_back();
    dependencies_[i] = dependencies_.back();
    dependencies_.pop_back();
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
