#pragma once

/// The communication stream. It executes the collectives of all groups one after the other, in the order in
/// which this device started them, since NCCL needs one order for all communicators. A body suspends where it
/// has to wait for messages. There is no progress thread: the next call resumes what is ready (see `resume_ready`).

#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "engine/device/runtime/call.hpp"
#include "engine/device/runtime/wait.hpp"

namespace shard::runtime {

/// The calls in progress of this device, in the order in which they were started.
class Stream {
 public:
  /// Adds a call at the end of the stream. A nonblocking message does not wait for earlier calls.
  void start(std::shared_ptr<Call> call);
  /// Runs the first call and all nonblocking messages as far as possible without waiting. Every call of a
  /// communicator and every product of matrices does this, from the device's own thread.
  void resume_ready();
  /// The same, before a product; then lets the other devices of this process run.
  void resume_before_work();
  /// Returns when this call is done, and frees its buffers. Rethrows its error, if there was one.
  void wait_for(Call& call);
  /// Whether this call is done. \throws Error deadlock when no call that this device has polled since its last
  /// call can ever be done
  bool poll(const std::shared_ptr<Call>& call);
  /// Ends a series of polls, since this device makes a call.
  void stop_polling();
  /// Returns when all calls are done.
  void drain();

  /// The calls in progress: those that wait for one another, in order, and the nonblocking messages.
  const std::deque<std::shared_ptr<Call>>& queue() const { return queue_; }
  const std::list<std::shared_ptr<Call>>& posted() const { return posted_; }
  /// The calls that this device has polled since its last call.
  const std::vector<std::shared_ptr<Call>>& polled() const { return polled_; }

  /// The number of calls of this device in all groups. Errors name a call by its number.
  Index calls() const { return calls_; }
  Index count_call() { return calls_++; }

  /// Whether the body of a call runs. Then the stream must resume no other.
  bool is_in_body() const { return is_in_body_; }

  /// True while this device makes a group. The group's members then wait for this device, so it must not wait
  /// for a single one of them.
  bool is_making_a_group = false;

 private:
  void resume_collectives();
  /// Runs the body of the call as far as possible. Returns whether the call is done.
  bool run_body(Call& call);
  void give_up(Call& call);

  Index calls_ = 0;
  bool is_in_body_ = false;
  std::deque<std::shared_ptr<Call>> queue_;
  std::list<std::shared_ptr<Call>> posted_;
  static constexpr std::size_t most_tests = 64;  // of nonblocking messages in one resume_ready(), round-robin
  std::list<std::shared_ptr<Call>>::iterator next_posted_ = posted_.begin();
  std::vector<std::shared_ptr<Call>> polled_;
  std::optional<Wait> poll_wait_;  // since the first poll
};

Stream& stream();

}  // namespace shard::runtime
