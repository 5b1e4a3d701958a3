#pragma once

/// NCCL's communicators. A group has one for its collectives, and one for each pair of its members that send
/// each other messages. Collectives of all groups share one stream: they are launched in the order in which
/// this device started them. Each pair has its own stream, so that a message that waits delays nothing else.

#include <nccl.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cuda/gpu.hpp"
#include "engine/device/runtime/stream.hpp"

namespace shard::cuda {

using runtime::Group;

/// A communicator of NCCL, and the stream that its calls are launched in.
struct NcclCommunicator {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
};

/// This device's connection to one other member of a group. NCCL's sends and receives between two devices
/// must be launched in one order on both. The device with the lower id in the job decides it: it numbers the
/// messages of both directions.
class Pair {
 public:
  /// `peer` is the other one's place in the group.
  Pair(int peer, bool decides_order) : peer_(peer), decides_order_(decides_order) {}

  bool decides_order() const { return decides_order_; }
  /// The other device's rank in the pair's NCCL communicator.
  int rank_of_peer() const { return decides_order_ ? 1 : 0; }
  /// A message's position in the order of both directions, as the device that decides gives it.
  Index next_position() { return given_++; }
  /// A message's number among those of its direction, in the order in which they were started.
  Index next_sent() { return sent_++; }
  Index next_received() { return received_++; }

  Index ordered_sends = 0;     ///< this device's sends that have a position, or have asked for one
  Index ordered_receives = 0;  ///< the same of its receives
  Index launched = 0;          ///< messages of both directions

  /// Made at the pair's first message: both devices come here, and each waits for the other one.
  const NcclCommunicator& connected(const Group& group);
  cudaStream_t stream();
  ncclComm_t& comm() { return communicator_.comm; }
  void close();

 private:
  int peer_;
  bool decides_order_;
  Index given_ = 0, sent_ = 0, received_ = 0;
  NcclCommunicator communicator_;
};

/// What connects the members of a group. It outlives the group: see close_connections.
struct Connections {
  std::vector<int> members;
  NcclCommunicator collectives;               ///< of all members; none for a group of one
  std::map<std::pair<int, int>, Pair> pairs;  ///< by both ids in the job, the lower one first
  bool is_in_use = true;                      ///< its group is still there
};

/// How a group sends tensor data.
class NcclDataPlane : public runtime::DataPlane {
 public:
  /// A collective of the group. Connections of an earlier group of the same members are used again.
  explicit NcclDataPlane(const Group& group);
  ~NcclDataPlane() override { connections_.is_in_use = false; }
  NcclDataPlane(const NcclDataPlane&) = delete;
  NcclDataPlane& operator=(const NcclDataPlane&) = delete;

  const NcclCommunicator& collectives() const { return connections_.collectives; }
  Pair& pair_with(const Group& group, int peer);

 private:
  Connections& connections_;
};

const NcclCommunicator& collectives_of(const Group& group);
Pair& pair_with(const Group& group, int peer);

/// Awaits that a counter reaches a number.
class Turn : public runtime::Awaited {
 public:
  Turn(const Index& counter, Index number) : counter_(counter), number_(number) {}
  bool test() override { return counter_ == number_; }
  std::optional<Blocked::Dependencies> dependencies() const override { return {}; }

 private:
  const Index& counter_;
  Index number_;
};

/// Awaits that this device may wait for one other device: not while it makes a group, whose members wait for
/// it.
class NoGroupIsBeingMade : public runtime::Awaited {
 public:
  bool test() override { return !runtime::stream().is_making_a_group; }
  std::optional<Blocked::Dependencies> dependencies() const override { return {}; }
};

/// The events at which an operation begins and ends in the GPU's streams.
class OperationEvents : public runtime::OnDevice {
 public:
  /// The operation begins after all computation that has been launched so far.
  OperationEvents() { argument.record(gpu().computation()); }
  bool is_reached() override { return end.test(); }
  void join() override { end.hold(gpu().computation()); }

  Event argument;
  Event end;
};
OperationEvents& events_of(runtime::Call& call);

/// While it lives, an operation's work is launched in a stream: behind its argument's event, and its end's
/// event comes behind it.
class LaunchIn {
 public:
  LaunchIn(cudaStream_t stream, runtime::Call& call) : events_(events_of(call)), stream_(stream) {
    events_.argument.hold(stream_);
  }
  ~LaunchIn() noexcept(false) {
    if (std::uncaught_exceptions() == 0) events_.end.record(stream_);
  }
  LaunchIn(const LaunchIn&) = delete;
  LaunchIn& operator=(const LaunchIn&) = delete;

 private:
  OperationEvents& events_;
  cudaStream_t stream_;
};

/// While it lives, calls of NCCL are collected; at its end they are launched together.
class NcclGroupCall {
 public:
  NcclGroupCall();
  ~NcclGroupCall() noexcept(false);
  NcclGroupCall(const NcclGroupCall&) = delete;
  NcclGroupCall& operator=(const NcclGroupCall&) = delete;
};

/// \throws Error lost when NCCL has found a peer gone. Communicators stay: to abort one may wait for the work of
/// another, and the program's end ends them all.
void check_connections();
/// The streams of collectives, of all pairs, and of computation, and what their work is.
std::vector<std::pair<std::string, cudaStream_t>> streams();
/// Destroys all communicators, when no work is left and every device comes here. NCCL's own destroying may
/// wait for the other devices on the machine. So no group destroys its own, and the order is the same on all
/// devices: by group, then by pair.
void close_connections();

}  // namespace shard::cuda
