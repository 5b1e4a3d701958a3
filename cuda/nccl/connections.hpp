#pragma once

/// NCCL's communicators. A group has one for collectives. All groups share one for each two devices that send each
/// other messages. The collectives of all groups share one stream, in the order in which this device started them.
/// Each two devices have their own stream, so that a waiting message delays no other work.

#include <nccl.h>

#include <exception>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda/gpu.hpp"
#include "cuda/ranges.hpp"
#include "engine/device/runtime/collectives/collectives.hpp"
#include "engine/device/runtime/stream.hpp"

namespace shard::cuda {

using runtime::Group;

/// An NCCL communicator, and the stream of its calls.
struct NcclCommunicator {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
};

/// This device's connection to another device, for the messages of all groups. Both devices must launch NCCL's sends
/// and receives between them in the same order. The device with the lower id in the job decides it: it numbers the
/// messages of both directions.
class Link {
 public:
  explicit Link(bool decides_order) : decides_order_(decides_order) {}

  bool decides_order() const { return decides_order_; }
  /// The other device's rank in the link's NCCL communicator.
  int rank_of_peer() const { return decides_order_ ? 1 : 0; }
  /// The next position in the order of both directions. Only the deciding device calls it.
  Index next_position() { return given_++; }

  Index launched = 0;  ///< the number of launched messages of both directions

  /// Whether this device has launched all messages that it has given a position.
  bool has_launched_all() const { return !decides_order_ || launched == given_; }

  /// Connects the devices if they are not: both call this for the same message, and wait for each other. `peer` is the
  /// other device's place in the message's group.
  const NcclCommunicator& connected(const Group& group, int peer);
  cudaStream_t stream();
  ncclComm_t comm() const { return communicator_.comm; }
  void close();

 private:
  bool decides_order_;
  Index given_ = 0;
  NcclCommunicator communicator_;
};

/// The messages of a group between this device and another one.
struct Pair {
  Link& link;
  Index sent = 0,
        received = 0;  ///< the numbers of messages in each direction, in the order of this device's calls
  Index ordered_sends = 0;     ///< the number of this device's sends with a position
  Index ordered_receives = 0;  ///< the number of receives with a position, or that have asked for one
};

/// The connections of a group. They outlive the group (see close_connections).
struct Connections {
  std::vector<int> members;
  NcclCommunicator collectives;  ///< no communicator in a group of one
  std::map<int, Pair> pairs;     ///< by the other device's place in the group
  bool is_in_use = true;         ///< the group exists
};

/// The NCCL connections of a group.
class NcclDataPlane : public runtime::DataPlane {
 public:
  /// Reuses the connections of an earlier group of the same members. In a small job, that of all devices also links each
  /// two of them: NCCL may wait for the GPU there, so nothing should be on its way. A collective of the group.
  explicit NcclDataPlane(const Group& group);
  ~NcclDataPlane() override { connections_.is_in_use = false; }
  NcclDataPlane(const NcclDataPlane&) = delete;
  NcclDataPlane& operator=(const NcclDataPlane&) = delete;

  runtime::Task body_of(runtime::Call& call) override;
  const NcclCommunicator& collectives() const { return connections_.collectives; }
  Pair& pair_with(const Group& group, int peer);

 private:
  Connections& connections_;
};

/// \name The bodies of calls, by NCCL
/// @{
runtime::Task barrier(runtime::Call& call);
runtime::Task all_gather(runtime::Call& call);
runtime::Task all_reduce(runtime::Call& call);
runtime::Task reduce_scatter(runtime::Call& call);
runtime::Task all_to_all(runtime::Call& call);
runtime::Task broadcast(runtime::Call& call);
runtime::Task send_async(runtime::Call& call);
runtime::Task send(runtime::Call& call);
runtime::Task receive(runtime::Call& call);
/// @}

const NcclCommunicator& collectives_of(const Group& group);
Pair& pair_with(const Group& group, int peer);

/// Waits until a counter reaches a number.
class Turn : public runtime::Awaited {
 public:
  Turn(const Index& counter, Index number) : counter_(counter), number_(number) {}
  bool test() override { return counter_ == number_; }
  std::optional<Blocked::Dependencies> dependencies() const override { return {}; }

 private:
  const Index& counter_;
  Index number_;
};

/// Waits while this device makes a group: the group's members wait for it then, so it must not wait for one
/// device.
class MayWaitForPeer : public runtime::Awaited {
 public:
  bool test() override { return !runtime::stream().is_making_a_group; }
  std::optional<Blocked::Dependencies> dependencies() const override { return {}; }
};

/// The begin and the end of a call's work in the GPU's streams.
class OperationEvents : public runtime::Awaited {
 public:
  /// The work begins after all computation that has been launched so far.
  OperationEvents() { argument.record(gpu().computation()); }
  bool test() override { return end->test(); }
  std::optional<Blocked::Dependencies> dependencies() const override { return end->dependencies(); }
  void finish() override { end->make_wait(gpu().computation()); }

  Event argument;
  std::shared_ptr<Event> end = std::make_shared<Event>();
};
OperationEvents& events_of(runtime::Call& call);
/// Notes the end of a call's work in a stream, for first_call_in.
void note_launch(cudaStream_t stream, const runtime::Call& call, std::shared_ptr<Event> end);
/// The first call whose work the stream has not done, with its line: " (all_reduce chapters/...:31)", or nothing.
std::string first_call_in(cudaStream_t stream);

/// During its lifetime, a call's work is launched in a stream. The work waits for the event `argument`, and at
/// the end records the event `end`.
class LaunchIn {
 public:
  LaunchIn(cudaStream_t stream, runtime::Call& call)
      : range_(call.name, call.request.where), call_(call), stream_(stream) {
    events_of(call_).argument.make_wait(stream_);
  }
  ~LaunchIn() noexcept(false) {
    if (std::uncaught_exceptions() != errors_before_) return;
    events_of(call_).end->record(stream_);
    note_launch(stream_, call_, events_of(call_).end);
  }
  LaunchIn(const LaunchIn&) = delete;
  LaunchIn& operator=(const LaunchIn&) = delete;

 private:
  TimeRange range_;
  runtime::Call& call_;
  cudaStream_t stream_;
  int errors_before_ = std::uncaught_exceptions();
};

/// Collects NCCL calls during its lifetime, and launches them together at its end.
class NcclGroupCall {
 public:
  NcclGroupCall();
  ~NcclGroupCall() noexcept(false);
  NcclGroupCall(const NcclGroupCall&) = delete;
  NcclGroupCall& operator=(const NcclGroupCall&) = delete;

 private:
  int errors_before_ = std::uncaught_exceptions();
};

/// Returns when this device has launched all messages to which it has given a position.
void launch_ordered_messages();
/// \throws Error lost when NCCL reports a lost peer. Does not abort communicators, since that may wait for another
/// one's work; the program ends anyway.
void check_connections();
/// All streams, with names of their work: collectives, the messages with each other device, and computation.
std::vector<std::pair<std::string, cudaStream_t>> streams();
/// The bytes of this GPU's memory that NCCL has taken for its buffers. Another process on the GPU can falsify it.
Index taken_by_nccl();
/// Destroys all communicators, at the end of the program on every device. NCCL may wait there for other devices
/// of the machine, so groups do not destroy their own, and the order is the same on all devices: by group, then
/// by link.
void close_connections();

}  // namespace shard::cuda
