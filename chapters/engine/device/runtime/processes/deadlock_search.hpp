#pragma once

/// The search for a deadlock. A device that has waited for a while asks all others for their states, and those
/// that wait or poll answer. A deadlock is never concluded from a timeout: it is proved.
///
/// 1. A state contains the posts of other devices that the device waits for, and the numbers of its own posts.
///    Sends and receives count when they are posted, so a message in flight is not missing.
/// 2. If two answers of a device are equal, its state did not change between them: a device that proceeds makes
///    calls and posts, whose numbers only grow.
/// 3. So we know the state of a device at a moment if it gave equal answers before and after that moment. Any other
///    device may do anything, and so may one that polls.
/// 4. Begin with the set of devices that may do anything. Repeatedly add each device with a call that depends only on
///    posts that are made, or that a device of the set may make. The devices outside of the set never post again: the
///    first of their posts would depend on an earlier one of them.
/// 5. A device can never continue if each call that it waits for, or that it polls, depends on a missing post of a
///    device outside of the set.

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "engine/device/runtime/watchdog/deadlock.hpp"

namespace shard::runtime {

/// One device's part in the search.
class DeadlockSearch {
 public:
  using Clock = std::chrono::steady_clock;
  using Send = std::function<void(int to, const std::string& bytes)>;

  DeadlockSearch(int me, int devices);

  /// Call it when a question arrives. It is answered when this device has waited for a while.
  void on_question(int asker);
  void on_answer(int device, const std::string& bytes);

  struct Outgoing {
    Send question, answer;
  };
  /// The devices that are proved to be stuck, and all states at that moment.
  struct Found {
    std::vector<int> stuck;
    DeviceStates states;
  };
  /// Call it repeatedly while this device waits. `since`: when the wait began.
  std::optional<Found> poll(const std::function<DeviceState()>& describe, Clock::time_point since,
                            const Outgoing& out);

 private:
  /// What this device knows of another one.
  struct Known {
    std::optional<DeviceState> state;
    bool is_asked = false;        // a question is not answered yet
    Clock::time_point asked;      // when the last question was sent
    Clock::time_point confirmed;  // when the question of the last answer was sent
    Clock::time_point first;      // when the first of its equal answers arrived
  };

  void ask(Clock::time_point now, const Outgoing& out);
  void update(int device, DeviceState state);
  void prove();
  /// How long to wait for proof that more devices than those of `found_` are stuck.
  Clock::duration time_to_grow() const;

  int me_;
  std::vector<Known> known_;         // by device
  std::vector<int> askers_;          // devices that wait for an answer
  Clock::time_point lower_asked_{};  // when a device with a lower id asked last
  Clock::time_point last_round_{};
  bool has_news_ = false;
  std::optional<Found> found_;  // proved; reported when more devices have answered
  Clock::time_point proved_{};
  bool is_urgent_ = false;  // a deadlock is likely: ask again at once
};

}  // namespace shard::runtime
