#pragma once

/// The devices of one communicator, and their control messages: shapes and other arguments of calls. The ledger
/// does not count these. The group counts all posts, so that the control plane can tell what a device waits
/// for.

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/device/device.hpp"
#include "engine/device/runtime/groups/wire.hpp"
#include "engine/device/runtime/watchdog/control_plane.hpp"

namespace shard::runtime {

/// Messages between two devices arrive in order on each channel. Each backend uses some of them.
enum class Channel : int {
  header,           ///< fingerprints of a call
  claim,            ///< descriptions of calls, when fingerprints differ
  counts,           ///< the sizes of an all_to_all's parts
  shape,            ///< the shape of a member's tensor in a collective
  data,             ///< tensor data of collectives (emulator)
  message_shape,    ///< the shape of a message
  message_data,     ///< the data of a message (emulator)
  receiver_ready,   ///< the receiver has called receive
  place_to_send,    ///< to the sender: its message's position in the order of the pair
  place_to_receive  ///< to the receiver: the same
};
inline constexpr int num_channels = 10;
/// The first of the channels that do not belong to one collective call.
inline constexpr Channel first_of_messages = Channel::message_shape;
/// Tags from here on are free for a backend's own use; there are 16384 of them at least (MPI 4.0, section
/// 9.1.2, promises tags up to 32767).
inline constexpr int first_free_tag = 16383;

enum class Side { sending, receiving };

/// An event that a body can wait for.
class Awaited {
 public:
  virtual ~Awaited() = default;
  virtual bool test() = 0;
  /// The posts of other devices that it waits for; nothing if it waits for another call of this device.
  virtual std::optional<Blocked::Dependencies> dependencies() const = 0;
  /// Called when the waiting body continues. It may throw.
  virtual void finish() {}
};

/// Messages that are posted and not known to be complete.
class Posts : public Awaited {
 public:
  ~Posts() override { give_up(); }
  /// Abandons the incomplete messages, since an error has ended their call.
  void give_up();
  /// Removes complete messages; true when none is left. \throws Error lost when a peer is gone
  bool test() override;
  std::optional<Blocked::Dependencies> dependencies() const override { return dependencies_; }

 private:
  friend class Group;
  struct Post {
    Started request;
    Index* posted;  // the count in the group's slot
  };
  std::vector<Post> requests_;
  Blocked::Dependencies dependencies_;
};

class Call;
class Task;

/// A backend's own way to send a group's tensor data, where that is not by messages over the wire.
class DataPlane {
 public:
  virtual ~DataPlane() = default;
  virtual Task body_of(Call& call) = 0;
};

/// A member is given by its place, 0 to num_devices() - 1. The control plane and errors use ids in the job.
class Group {
 public:
  /// All devices of the job. A collective.
  static std::shared_ptr<Group> world();
  /// Makes a group of these members, in this order; this device is one of them. A collective of these members. It
  /// does not notice errors of other devices, so all members must be certain to call it.
  std::shared_ptr<Group> part(Index id, const std::vector<int>& places) const;
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  Index id() const { return id_; }
  int device_id() const { return wire_->place(); }
  int num_devices() const { return static_cast<int>(members_.size()); }
  /// The members' ids in the job.
  const std::vector<int>& members() const { return members_; }
  int member(int place) const { return members_[static_cast<std::size_t>(place)]; }
  /// The group's name in errors: " in group {4, 1, 3}", and an empty text for the world.
  const std::string& in_group() const { return in_group_; }

  /// Posts a control message. Its memory must not change until the posts are complete. A `synchronous` send is
  /// complete only when its receive has been posted.
  void post(Posts& posts, Channel channel, int to, std::span<const Index> numbers, bool synchronous = false);
  void post_receive(Posts& posts, Channel channel, int from, std::span<Index> numbers);

  /// Begins the next collective call. Its number is part of the tags of its messages, so that messages of a failed
  /// call do not match receives of a later one.
  void begin_call() { ++calls_begun_; }
  /// The number of collective calls that this device has begun in this group.
  Index calls_begun() const { return calls_begun_; }
  /// The number of posts that this device has made on a channel.
  Index posted(Side side, Channel channel, int peer) const {
    const auto count = posted_.find(slot(side, channel, peer));
    return count == posted_.end() ? 0 : count->second;
  }
  /// The last call that all members have made: its name, number and line.
  struct LastCall {
    std::string name;
    Index call;
    SourceLine where;
    bool is_counted;
  };
  std::optional<LastCall> last_agreed;
  /// The tag of messages on a channel.
  int tag(Channel channel) const;

  /// Slots of no channel, which count control collectives, begun collective calls, and collectives at the end of
  /// the program.
  static constexpr Index control_slot = 0, calls_slot = 1, end_slot = 2;

  /// For a backend that sends tensor data over the wire, too. It reports its sends and receives by track().
  Wire& wire() const { return *wire_; }
  void track(Posts& posts, Started request, Side side, Channel channel, int peer);

  /// Returns all members' texts, in order, on member 0 or on all; nothing on other members. A collective that
  /// does not wait for the stream.
  std::vector<std::string> gather(const Request& request);
  /// Returns the largest exit code when all devices are at the end of the program. A collective of the world, on a
  /// wire of its own, so that it never matches a gather.
  Index max_at_end(Index exit_code);
  /// An all-to-all after max_at_end: returns the number that each member has for this one.
  std::vector<Index> exchange_at_end(const std::vector<Index>& numbers_for_each);

  /// Null for the bodies of collectives.hpp.
  std::unique_ptr<DataPlane> data_plane;

 private:
  Group(std::unique_ptr<Wire> wire, Index id, std::vector<int> members);
  /// The slot in which a device counts its posts on this side of a channel with this peer.
  Index slot(Side side, Channel channel, int peer) const;
  /// Returns when the request is complete. Calls in flight proceed meanwhile. If an error ends the wait, the
  /// request goes on, so its `memory` then lives as long as the device.
  void wait_for(const std::string& what, Started request, std::shared_ptr<void> memory,
                Index slot = control_slot);
  std::vector<Index> all_gather(const std::string& what, Index mine);
  /// \throws Error mismatch, on all members, unless all of them make this gather.
  void require_same_gather(const Request& mine);

  std::unique_ptr<Wire> wire_, wire_of_end_;
  Index id_;
  std::vector<int> members_;
  std::string in_group_;
  std::map<Index, Index> posted_ = {{control_slot, 0}, {calls_slot, 0}};  // by slot
  Index& calls_begun_ = posted_.at(calls_slot);
  /// A slot's place in posted_: a ring counts in the same two again and again.
  struct Counted {
    Index slot = -1;
    Index* posts = nullptr;
  };
  std::array<Counted, 2> counted_last_;  // by side
};

/// "device 1", "devices 0 to 3, 5".
std::string devices_text(std::vector<int> devices);

}  // namespace shard::runtime
