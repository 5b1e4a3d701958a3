#pragma once

/// NCCL communicators and the queues that they work in: one for all devices' collectives, and one for each
/// pair of devices that send each other letters, so that a letter that waits holds up nothing else.

#include <nccl.h>

#include <vector>

#include "cuda/gpu.hpp"
#include "engine/device/runtime/stream.hpp"

namespace shard::cuda {

struct Wire {
  ncclComm_t comm = nullptr;
  cudaStream_t queue = nullptr;
};

/// For collectives. Made at the start, by all devices together.
Wire& wire_to_all();
void make_wire_to_all();

/// The way to one other device. NCCL's sends and receives on a wire must be queued in one order on both
/// sides: the device of the lower id gives out places.
class Pair {
 public:
  explicit Pair(int peer);

  bool gives_places() const;
  Index next_place() { return given_++; }
  /// Letters of this direction, in the order in which they were started.
  Index next_sent() { return sent_++; }
  Index next_received() { return received_++; }

  Index placed_sends = 0;     ///< of this device's, by it if it gives places
  Index placed_receives = 0;  ///< the same
  Index queued = 0;           ///< of both directions

  /// Made by both when they queue their first letter.
  Wire& wire();
  /// Where letters are queued.
  cudaStream_t queue();
  void close();
  Wire* made_wire() { return wire_.comm == nullptr ? nullptr : &wire_; }

 private:
  int peer_;
  Index given_ = 0, sent_ = 0, received_ = 0;
  Wire wire_;
};
Pair& pair_with(int peer);

/// Until a counter has come to my number.
class Turn : public runtime::Awaited {
 public:
  Turn(const Index& counter, Index mine) : counter_(counter), mine_(mine) {}
  bool test() override { return counter_ == mine_; }
  std::optional<Blocked::Needs> needs() const override { return {}; }

 private:
  const Index& counter_;
  Index mine_;
};

/// An operation on its way through the GPU's queues.
class Passage : public runtime::OnDevice {
 public:
  /// Its argument is what has been queued for computation by now.
  Passage() { argument.record(gpu().computation()); }
  bool is_reached() override { return end.test(); }
  void join() override { end.hold(gpu().computation()); }

  Event argument;
  Event end;
};
Passage& passage_of(runtime::Operation& o);

/// While it lives, an operation's work is put in a queue.
class Queueing {
 public:
  Queueing(runtime::Operation& o, cudaStream_t queue) : passage_(passage_of(o)), queue_(queue) {
    passage_.argument.hold(queue_);
  }
  ~Queueing() noexcept(false) {
    if (std::uncaught_exceptions() == 0) passage_.end.record(queue_);
  }
  Queueing(const Queueing&) = delete;
  Queueing& operator=(const Queueing&) = delete;

 private:
  Passage& passage_;
  cudaStream_t queue_;
};

/// Calls of NCCL that go on at the same time.
class Group {
 public:
  Group();
  ~Group() noexcept(false);
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
};

/// \throws Error lost when NCCL has found a peer gone; all wires are then cut, so that nobody goes on
/// waiting.
void check_wires();
/// Of computation, and of all wires.
std::vector<cudaStream_t> queues();
void close_wires();

}  // namespace shard::cuda
