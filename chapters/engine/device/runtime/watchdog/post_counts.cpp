#include "engine/device/runtime/watchdog/post_counts.hpp"

#include <algorithm>

#include "engine/device/this_device.hpp"

namespace shard::runtime {

namespace {

constexpr std::size_t groups_remembered = 256;

struct AllCounts {
  std::map<Index, const std::map<Index, Index>*> counts;  // by group
  std::map<Index, std::map<Index, Index>> removed;        // of the groups that were removed last
};

AllCounts& all() {
  return device().state<AllCounts>();
}

}  // namespace

PostCounts::PostCounts(Index group, const std::vector<int>& members, int place, int channels)
    : group_(group), members_(members), place_(place), channels_(channels) {
  all().counts[group_] = &counts_;
}

PostCounts::~PostCounts() {
  auto& [counts, removed] = all();
  counts.erase(group_);
  removed[group_] = std::move(counts_);
  if (removed.size() > groups_remembered) removed.erase(removed.begin());
}

std::map<Index, std::map<Index, Index>> PostCounts::of_all_groups() {
  std::map<Index, std::map<Index, Index>> found = all().removed;
  for (const auto& [group, counts] : all().counts) found[group] = *counts;
  return found;
}

Index PostCounts::slot(Side side, int channel, int peer) const {
  const Index row = static_cast<Index>(side) * channels_ + channel;
  return end_slot + 1 + row * static_cast<Index>(members_.size()) + peer;
}

/// The k-th post on a channel meets the peer's k-th post on the channel's other side. In each collective, counts
/// start at the call's number times 2^32, so they stay equal on both sides after a failed call.
PostCounts::Post PostCounts::count(Side side, int channel, int peer, bool is_of_call) {
  Counted& counted = counted_last_[static_cast<std::size_t>(side)];
  const Index here = slot(side, channel, peer);
  if (counted.slot != here) counted = {here, &counts_[here]};
  Index& posts = *counted.posts;
  if (is_of_call) posts = std::max(posts, calls_begun_ << 32);
  ++posts;
  const Side other_side = side == Side::sending ? Side::receiving : Side::sending;
  return {&posts, {id_of(peer), group_, slot(other_side, channel, place_), posts}};
}

Index PostCounts::posted(Side side, int channel, int peer) const {
  const auto count = counts_.find(slot(side, channel, peer));
  return count == counts_.end() ? 0 : count->second;
}

Blocked::Dependencies PostCounts::entered_by_others(Index slot, Index number) const {
  Blocked::Dependencies others;
  for (int id : members_)
    if (id != id_of(place_)) others.push_back({id, group_, slot, number});
  return others;
}

}  // namespace shard::runtime
