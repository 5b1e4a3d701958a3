#pragma once

/// The communication stream. The body of a call suspends where it has to wait for messages. The
/// stream runs the collectives of all groups one after the other, in the order in which this device started
/// them: NCCL demands one order for all communicators. There is no progress thread; every call into the
/// runtime lets the stream go on.

#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "engine/device/runtime/call.hpp"

namespace shard::runtime {

/// The calls of this device, in the order in which they were started.
class Stream {
 public:
  /// Adds a call at the end of the stream, and lets the first one of the stream go on. A message that is posted
  /// does not wait for its turn.
  void start(std::shared_ptr<Call> call);
  /// Lets everything that was started go on as far as it can without waiting.
  void advance();
  /// The same, between two pieces of work: the devices of one process have a turn, too.
  void advance_during_work();
  /// Returns when this call is done, and frees its buffers. Rethrows its error, if there was one.
  void wait_for(Call& call);
  /// Whether this call is done. \throws Error deadlock, when neither it can ever be done nor any other
  /// that this device has polled since it last made one
  bool poll(const std::shared_ptr<Call>& call);
  /// Says that this device makes a call: it does not poll any more.
  void stop_polling();
  /// Returns when all calls are done, those on the stream and those that were posted.
  void drain();
  /// Describes a wait for this call. One on the stream waits for the first one on the stream.
  Blocked describe(const Call& call) const;
  /// Describes a wait for all calls.
  Blocked describe() const;
  /// What each call that may go on needs.
  std::vector<Blocked::Needs> in_flight() const;

  /// Calls made by this device, in all groups; an error names a call by its number.
  Index calls() const { return calls_; }
  Index count_call() { return calls_++; }

  /// Set while this device makes a group. The other members wait for it then, so a backend must not let it
  /// wait for one single device.
  bool is_making_a_group = false;

 private:
  /// Lets it go on as far as it can; whether it is done.
  static bool advance(Call& call);
  const Call& first_before(const Call& call) const;
  Blocked blocked_by(const Call& call) const;
  Blocked describe_polled() const;
  void give_up(Call& call);

  Index calls_ = 0;
  std::deque<std::shared_ptr<Call>> queue_;
  std::list<std::shared_ptr<Call>> posted_;
  static constexpr std::size_t most_looks = 64;  // of a call, at posted ones: each has its turn
  std::list<std::shared_ptr<Call>>::iterator next_posted_ = posted_.begin();
  std::vector<std::shared_ptr<Call>> polled_;   // since the last call
  std::optional<ControlPlane::Wait> patience_;  // of a device that polls
};

Stream& stream();

}  // namespace shard::runtime
