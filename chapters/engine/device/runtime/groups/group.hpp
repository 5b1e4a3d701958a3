#pragma once

/// The devices of one communicator, and the control messages among them: the shape and the other arguments of
/// a call. The ledger does not count them. The control plane knows what has been posted, so that it can tell
/// what a device waits for.

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/device/device.hpp"
#include "engine/device/runtime/groups/wire.hpp"
#include "engine/device/runtime/watchdog/control_plane.hpp"

namespace shard::runtime {

/// Messages between two devices do not overtake one another on a channel. Each backend uses some of them.
enum class Channel : int {
  header,          ///< fingerprints of a call
  claim,           ///< the call as a text, when fingerprints differ
  counts,          ///< the sizes of an all_to_all's parts
  shape,           ///< the shape of what a member sends in a collective
  data,            ///< tensor data of collectives, where a wire carries it
  message_shape,   ///< shapes of what is sent and received
  message_data,    ///< its data, where a wire carries it
  receiver_ready,  ///< the receiver has called receive
  place_to_send,   ///< the sender's message is the k-th between the two
  place_to_receive
};
inline constexpr int num_channels = 10;
/// The first of the channels that do not belong to one collective call.
inline constexpr Channel first_of_messages = Channel::message_shape;
/// Tags from here on are free for a backend's own use; there are 16384 of them at least (MPI 4.0, section
/// 9.1.2, promises tags up to 32767).
inline constexpr int first_free_tag = 16383;

enum class Side { sending, receiving };

/// What an operation waits for.
class Awaited {
 public:
  virtual ~Awaited() = default;
  virtual bool test() = 0;
  /// What it needs from other devices, or nothing if it waits for another operation of this device.
  virtual std::optional<Blocked::Needs> needs() const = 0;
  /// Called when who awaits goes on. It may throw.
  virtual void finish() {}
};

/// Messages posted and not yet known to be complete.
class Posts : public Awaited {
 public:
  Posts() = default;
  Posts(Posts&&) = default;
  Posts& operator=(Posts&&) = default;
  ~Posts() override { give_up(); }
  /// Gives up the messages that are not complete: an error has ended their call.
  void give_up();
  /// Removes complete messages; true when none is left. \throws Error lost when a peer is gone
  bool test() override;
  std::optional<Blocked::Needs> needs() const override { return needs_; }

 private:
  friend class Group;
  struct Post {
    Started request;
    Side side;
    Index* posted;  // the group's count
  };
  std::vector<Post> requests_;
  Blocked::Needs needs_;
};

/// A backend's own part of a group: how it sends tensor data.
class DataPlane {
 public:
  virtual ~DataPlane() = default;
};

/// Members are counted from 0 here; the control plane and errors speak of devices of the job.
class Group {
 public:
  /// All devices of the job. A collective.
  static std::shared_ptr<Group> world();
  /// Makes a group of these members, in this order; this device is one of them. A collective of these
  /// members. All of them must be about to call it: while it waits, it does not notice errors of other
  /// devices.
  std::shared_ptr<Group> part(Index id, const std::vector<int>& places) const;
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  Index id() const { return id_; }
  int device_id() const { return wire_->place(); }
  int num_devices() const { return static_cast<int>(members_.size()); }
  /// By their ids in the job.
  const std::vector<int>& members() const { return members_; }
  int member(int place) const { return members_[static_cast<std::size_t>(place)]; }
  /// The group's name in errors: " in group {4, 1, 3}", and an empty text for the world.
  const std::string& in_group() const { return in_group_; }

  /// Posts a control message. The caller leaves its memory as it is until the posts are complete. A
  /// `synchronous` send is complete only when its receiver has begun to receive.
  void post(Posts& posts, Channel channel, int to, std::span<const Index> numbers, bool synchronous = false);
  void post_receive(Posts& posts, Channel channel, int from, std::span<Index> numbers);

  /// Begins the next collective call. Its number is part of the tags of its messages, so that no message of a
  /// call that has failed is taken for one of a later call.
  void begin_call() { ++posted_[calls_slot]; }
  /// How many calls this device has begun.
  Index calls_begun() const { return posted_.at(calls_slot); }
  /// How many posts this device has made on a channel.
  Index posted(Side side, Channel channel, int peer) const {
    const auto count = posted_.find(slot(side, channel, peer));
    return count == posted_.end() ? 0 : count->second;
  }
  /// The last call that all members have made: its name, number and line.
  struct LastCall {
    std::string name;
    Index call;
    SourceLine where;
  };
  std::optional<LastCall> last_agreed;
  /// The tag of messages on a channel.
  int tag(Channel channel) const;

  /// The slots of the control plane that count no channel: control collectives, collective calls begun, and
  /// ends of the program.
  static constexpr Index control_slot = 0, calls_slot = 1, end_slot = 2;

  /// For a backend that also sends tensor data over it.
  Wire& wire() const { return *wire_; }
  void track(Posts& posts, Started request, Side side, Channel channel, int peer);

  /// Returns all members' texts, in order: on member 0, and nothing on the others; or on all. A collective that
  /// does not wait for its turn on the stream.
  std::vector<std::string> gather(const Request& request);
  /// Returns the largest exit code, when every device has come to the end of the program. Of the world. It
  /// cannot be taken for a gather, as it has a communicator of its own.
  Index meet_at_end(Index exit_code);
  /// After that: the number that each member has for this one.
  std::vector<Index> exchange_at_end(const std::vector<Index>& numbers_for_each);

  /// The backend's part of the group.
  std::unique_ptr<DataPlane> data_plane;

 private:
  Group(std::unique_ptr<Wire> wire, Index id, std::vector<int> members);
  /// The control plane's slot of a channel, as its poster counts it.
  Index slot(Side side, Channel channel, int peer) const;
  /// Returns when the request is complete. Operations in flight go on while it waits.
  void wait_for(const std::string& what, Started request, Index slot = control_slot);
  std::vector<Index> all_gather(const std::string& what, Index mine);
  /// \throws Error mismatch, on all members, unless all of them make this gather.
  void require_same_gather(const Request& mine);

  std::unique_ptr<Wire> wire_, wire_of_end_;
  Index id_;
  std::vector<int> members_;
  std::string in_group_;
  std::map<Index, Index> posted_ = {{control_slot, 0}, {calls_slot, 0}};  // by slot
};

/// "device 1", "devices 0 to 3, 5".
std::string devices_text(std::vector<int> devices);

}  // namespace shard::runtime
