#pragma once

/// The devices of one communicator, and control messages among them, over MPI in both backends: shapes and
/// other news of a call. Nothing of it is counted. What is posted is known to the control plane, so that it can
/// tell what a device waits for.

#include <mpi.h>

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/device/runtime/control_plane.hpp"

namespace shard::runtime {

/// Messages between two devices do not overtake one another on a channel. Each backend uses some of them.
enum class Channel : int {
  header,          ///< what a call is, before its data
  data,            ///< tensor data of collectives, where MPI carries it
  message_shape,   ///< shapes of what is sent and received
  message_data,    ///< its data, where MPI carries it
  receiver_ready,  ///< the receiver is there
  place_to_send,   ///< the sender's message is the k-th between the two
  place_to_receive
};
inline constexpr int num_channels = 7;

/// What an operation waits for.
class Awaited {
 public:
  virtual ~Awaited() = default;
  virtual bool test() = 0;
  /// Of other devices; nothing: it waits for another operation of this device.
  virtual std::optional<Blocked::Needs> needs() const = 0;
};

/// Messages posted and not yet known to be complete.
class Posts : public Awaited {
 public:
  /// Complete ones are forgotten. \throws Error lost when a peer is gone
  bool test() override;
  std::optional<Blocked::Needs> needs() const override { return needs_; }

 private:
  friend class Group;
  std::vector<MPI_Request> requests_;
  Blocked::Needs needs_;
};

enum class Side { sending, receiving };

/// What a backend keeps for each group beside this: its way of sending tensor data.
class DataPlane {
 public:
  virtual ~DataPlane() = default;
};

/// Members are counted from 0 here, as in MPI; the control plane and errors speak of devices of the job.
class Group {
 public:
  /// All devices of the job. A collective.
  static std::shared_ptr<Group> world();
  /// These members, in this order; this device is one of them. A collective of theirs, and all of them must be
  /// on their way: it waits without looking out for other devices.
  std::shared_ptr<Group> part(Index id, const std::vector<int>& places) const;
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  Index id() const { return id_; }
  int device_id() const { return place_; }
  int num_devices() const { return static_cast<int>(members_.size()); }
  /// By their ids in the job.
  const std::vector<int>& members() const { return members_; }
  int member(int place) const { return members_[static_cast<std::size_t>(place)]; }
  /// " in group {4, 1, 3}", for errors; nothing for the world.
  std::string in_group() const;

  /// Memory stays untouched until the posts are complete. A `synchronous` send is complete only when its
  /// receiver has begun to receive.
  void post(Posts& posts, Channel channel, int to, std::span<const Index> numbers, bool synchronous = false);
  void post_receive(Posts& posts, Channel channel, int from, std::span<Index> numbers);

  /// For a backend that sends its data here too.
  MPI_Comm comm() const { return comm_; }
  void track(Posts& posts, MPI_Request request, Side side, Channel channel, int peer);

  /// Everybody's text, on place 0 in order; elsewhere nothing. A collective, not in the stream's order.
  std::vector<std::string> gather(const char* what, const std::string& mine);
  /// Everybody's number, on every device. The same.
  std::vector<Index> all_gather(const char* what, Index mine);

  /// The backend's part of the group.
  std::unique_ptr<DataPlane> data_plane;

 private:
  Group(MPI_Comm comm, Index id, std::vector<int> members);
  /// The control plane's slot of a channel, as its poster counts it.
  Index slot(Side side, Channel channel, int peer) const;
  /// Returns when the request is complete. Meanwhile what is in flight goes on.
  void wait_for(const char* what, MPI_Request request);

  MPI_Comm comm_;
  Index id_;
  int place_ = 0;
  std::vector<int> members_;
  std::vector<Index> posted_;  // by slot
};

/// \throws Error lost unless an MPI call was a success.
void require_success(int result, const char* what);
/// \throws Error argument when MPI cannot count so many.
int message_size(std::size_t elements);

}  // namespace shard::runtime
