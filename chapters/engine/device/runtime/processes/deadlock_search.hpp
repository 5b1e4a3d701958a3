#pragma once

/// The search for a deadlock. A device that has waited for a while asks all others what they wait for. Only
/// devices that wait or poll answer. No time that has passed is a reason: a deadlock is proved.
///
/// 1. An answer says which posts of other devices a device needs, and which it has made itself. Sends and
///    receives count when they are posted, so a message that is on its way is no missing one.
/// 2. If two answers of a device are equal, it was in that state all the time between: a device that goes on
///    makes calls and posts, and their numbers never become again what they were.
/// 3. So all devices that have given two equal answers, one before a moment and one after it, were in those
///    states at that moment. Any other device may do anything, and so may one that polls.
/// 4. Take all devices that may do anything, and add, again and again, each device one of whose operations
///    needs only posts that are made, or that a device of the set may make. The others are never helped: the
///    first of them to post would need a post of another one of them before.
/// 5. A device can never go on if each operation that would let it needs such a post, which nobody makes. Of
///    one that polls, this means all that it polls: it asks for that in vain, whatever it does next.

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

  /// A device has asked. Its answer is due as soon as this device has waited for a while.
  void hear_question(int asker);
  void hear_answer(int device, const std::string& bytes);

  /// Called now and then while this device waits. `waited`: since when it has been waiting.
  struct Outgoing {
    Send question, answer;
  };
  /// The devices that can never go on, if that has been proved, and their states.
  struct Found {
    std::vector<int> stuck;
    DeviceStates states;
  };
  std::optional<Found> look(const std::function<DeviceState()>& describe, Clock::time_point since,
                            const Outgoing& out);

 private:
  /// What is known of a device.
  struct Known {
    std::optional<DeviceState> state;
    bool is_asked = false;        // and has not answered yet
    Clock::time_point asked;      // when the last question was sent
    Clock::time_point confirmed;  // when the question was sent that the last answer belongs to
    Clock::time_point first;      // since when its answers have been the same
  };

  void ask(Clock::time_point now, const Outgoing& out);
  void learn(int device, DeviceState state);
  void judge();
  /// For how long more devices may turn out to be stuck than those of `found_`.
  Clock::duration time_to_grow() const;

  int me_;
  std::vector<Known> known_;            // by device
  std::vector<int> askers_;             // whom this device owes an answer
  Clock::time_point heard_of_lower_{};  // when a device with a lower id asked last
  Clock::time_point last_round_{};
  bool has_news_ = false;
  std::optional<Found> found_;  // proved; it is told a little later, when more devices have answered
  Clock::time_point proved_{};
  bool is_urgent_ = false;  // there may be a deadlock: ask again at once
};

}  // namespace shard::runtime
