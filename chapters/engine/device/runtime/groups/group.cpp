#include "engine/device/runtime/groups/group.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>
#include <utility>

namespace shard::runtime {

std::shared_ptr<Group> Group::world() {
  std::unique_ptr<Wire> wire = wire_of_world();
  std::vector<int> members(static_cast<std::size_t>(wire->size()));
  std::iota(members.begin(), members.end(), 0);
  std::shared_ptr<Group> all(new Group(std::move(wire), 0, std::move(members)));
  all->wire_of_end_ = wire_of_world();
  return all;
}

std::shared_ptr<Group> Group::subgroup(Index id, const std::vector<int>& places) const {
  std::vector<int> members;
  for (int place : places) members.push_back(member(place));
  return std::shared_ptr<Group>(new Group(wire_->subgroup(id, places), id, std::move(members)));
}

Group::Group(std::unique_ptr<Wire> wire, Index id, std::vector<int> members)
    : wire_(std::move(wire)),
      id_(id),
      members_(std::move(members)),
      in_group_(id_ == 0 ? "" : fmt::format(" in group {{{}}}", fmt::join(members_, ", "))),
      counts_(id_, members_, wire_->place(), num_channels) {}

Group::~Group() {
  data_plane.reset();
}

int Group::tag(Channel channel) const {
  constexpr int of_calls = static_cast<int>(first_of_messages);
  constexpr int calls_apart = first_free_tag / of_calls - 1;  // tags repeat after this number of calls
  const int c = static_cast<int>(channel);
  if (c >= of_calls) return of_calls * calls_apart + c - of_calls;
  return c + of_calls * static_cast<int>(counts_.calls_begun() % calls_apart);
}

void Group::track(Posts& posts, Started request, Side side, Channel channel, int peer) {
  const auto counted = counts_.count(side, static_cast<int>(channel), peer, channel < first_of_messages);
  if (request != nullptr) posts.requests_.push_back({std::move(request), counted});
}

void Group::post(Posts& posts, Channel channel, int to, std::span<const Index> numbers, bool synchronous) {
  track(posts, wire_->send(to, tag(channel), numbers, synchronous), Side::sending, channel, to);
}

void Group::post_receive(Posts& posts, Channel channel, int from, std::span<Index> numbers) {
  track(posts, wire_->receive(from, tag(channel), numbers), Side::receiving, channel, from);
}

void Posts::give_up() {
  for (auto& [request, counted] : requests_)
    if (request->give_up()) counted.take_back();
  requests_.clear();
}

bool Posts::test() {
  for (std::size_t i = 0; i < requests_.size();) {
    if (!requests_[i].request->test()) {
      ++i;
      continue;
    }
    requests_[i] = std::move(requests_.back());
    requests_.pop_back();
  }
  return requests_.empty();
}

std::optional<Blocked::Dependencies> Posts::dependencies() const {
  Blocked::Dependencies all;
  for (const Post& post : requests_) all.push_back(post.counted.meets());
  return all;
}

}  // namespace shard::runtime
