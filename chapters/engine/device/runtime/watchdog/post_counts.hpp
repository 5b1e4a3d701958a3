#pragma once

/// How many posts this device has made, group by group: what the search for deadlocks compares with the posts that other
/// devices wait for. A group reports each post here, and does nothing else for the search.

#include <array>
#include <map>
#include <vector>

#include "engine/device/runtime/watchdog/deadlock.hpp"

namespace shard::runtime {

enum class Side { sending, receiving };

/// This device's posts in one group. Members are given by their places, channels by their numbers.
class PostCounts {
 public:
  /// `place`: this device's.
  PostCounts(Index group, const std::vector<int>& members, int place, int channels);
  /// The counts of a removed group are kept, since other devices may still wait for messages in flight.
  ~PostCounts();
  PostCounts(const PostCounts&) = delete;
  PostCounts& operator=(const PostCounts&) = delete;
  /// The counts of all groups of this device.
  static std::map<Index, std::map<Index, Index>> of_all_groups();

  /// A post that is counted.
  class Post {
   public:
    /// The post of the other device that it meets.
    const Blocked::Dependency& meets() const { return meets_; }
    /// It was cancelled.
    void take_back() { --*count_; }

   private:
    friend class PostCounts;
    Post(Index* count, Blocked::Dependency meets) : count_(count), meets_(meets) {}
    Index* count_;
    Blocked::Dependency meets_;
  };
  /// Counts a post. `is_of_call`: on a channel of collective calls, not of messages.
  Post count(Side side, int channel, int peer, bool is_of_call);
  /// The number of posts on a channel of messages.
  Index posted(Side side, int channel, int peer) const;

  /// Begins the next collective call of the group.
  void begin_call() { ++calls_begun_; }
  Index calls_begun() const { return calls_begun_; }
  /// Met when this member has begun as many calls.
  Blocked::Dependency begun_by(int member) const { return {id_of(member), group_, calls_slot, calls_begun_}; }

  /// Slots of no channel, which count control collectives, begun collective calls, and collectives at the end of
  /// the program.
  static constexpr Index control_slot = 0, calls_slot = 1, end_slot = 2;
  /// Enters the next collective of a slot, and returns its number.
  Index enter(Index slot) { return ++counts_[slot]; }
  /// Met when all others have entered it, too.
  Blocked::Dependencies entered_by_others(Index slot, Index number) const;

 private:
  int id_of(int place) const { return members_[static_cast<std::size_t>(place)]; }
  /// The slot in which a device counts its posts on this side of a channel with this peer.
  Index slot(Side side, int channel, int peer) const;

  Index group_;
  const std::vector<int>& members_;
  int place_, channels_;
  std::map<Index, Index> counts_ = {{control_slot, 0}, {calls_slot, 0}};  // by slot
  Index& calls_begun_ = counts_.at(calls_slot);
  /// A slot's place in counts_: a ring counts in the same two again and again.
  struct Counted {
    Index slot = -1;
    Index* posts = nullptr;
  };
  std::array<Counted, 2> counted_last_;  // by side
};

}  // namespace shard::runtime
