#pragma once

/// The devices of one communicator, and their control messages: shapes and other arguments of calls. The ledger
/// does not count these.

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/device/device.hpp"
#include "engine/device/runtime/groups/wire.hpp"
#include "engine/device/runtime/watchdog/post_counts.hpp"

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
  std::optional<Blocked::Dependencies> dependencies() const override;

 private:
  friend class Group;
  struct Post {
    Started request;
    PostCounts::Post counted;
  };
  std::vector<Post> requests_;
};

class Call;
class Task;

/// A backend's own way to send a group's tensor data, where that is not by messages over the wire.
class DataPlane {
 public:
  virtual ~DataPlane() = default;
  virtual Task body_of(Call& call) = 0;
};

/// A member is given by its place, 0 to num_devices() - 1. The watchdog and errors use ids in the job.
class Group {
 public:
  /// All devices of the job. A collective.
  static std::shared_ptr<Group> world();
  /// Makes a group of these members, in this order; this device is one of them. A collective of these members. It
  /// does not notice errors of other devices, so all members must be certain to call it.
  std::shared_ptr<Group> subgroup(Index id, const std::vector<int>& places) const;
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
  void begin_call() { counts_.begin_call(); }
  /// The number of posts that this device has made on a channel of messages.
  Index posted(Side side, Channel channel, int peer) const {
    return counts_.posted(side, static_cast<int>(channel), peer);
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

  /// For a backend that sends tensor data over the wire, too. It reports its sends and receives by track().
  Wire& wire() const { return *wire_; }
  void track(Posts& posts, Started request, Side side, Channel channel, int peer);
  /// Of the world: a wire of its own for the end of the program, so that its messages never match others.
  Wire& wire_of_end() const { return *wire_of_end_; }

  /// What the watchdog compares. Nothing that is sent depends on it but a call's number, which is part of its tags.
  PostCounts& counts() { return counts_; }

  /// Null for the bodies of collectives.hpp.
  std::unique_ptr<DataPlane> data_plane;

 private:
  Group(std::unique_ptr<Wire> wire, Index id, std::vector<int> members);

  std::unique_ptr<Wire> wire_, wire_of_end_;
  Index id_;
  std::vector<int> members_;
  std::string in_group_;
  PostCounts counts_;
};

}  // namespace shard::runtime
