#pragma once

/// The search for a deadlock. A device that has waited for a while asks all others what they wait for. Only
/// devices that wait answer. There is no deadlock because of a time that has passed: it is proved from
/// answers that were true at one moment.

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "engine/device/runtime/deadlock.hpp"

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
