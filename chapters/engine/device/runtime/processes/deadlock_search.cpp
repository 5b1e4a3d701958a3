#include "engine/device/runtime/processes/deadlock_search.hpp"

#include <algorithm>
#include <utility>

namespace shard::runtime {

using namespace std::chrono_literals;

namespace {

constexpr auto answer_after = 4ms;  // of waiting
constexpr auto ask_after = 10ms;    // of waiting
constexpr auto between_rounds = 100ms;
constexpr auto for_more_devices = 2s;      // after the proof, to include slow devices
constexpr auto defer_after_lower = 300ms;  // after a question of a lower device

}  // namespace

DeadlockSearch::DeadlockSearch(int me, int devices) : me_(me), known_(static_cast<std::size_t>(devices)) {}

void DeadlockSearch::on_question(int asker) {
  if (asker < me_) lower_asked_ = Clock::now();
  askers_.push_back(asker);
}

void DeadlockSearch::on_answer(int device, const std::string& bytes) {
  Known& known = known_[static_cast<std::size_t>(device)];
  known.is_asked = false;
  known.confirmed = known.asked;
  update(device, DeviceState::from(bytes));
  has_news_ = true;
}

void DeadlockSearch::update(int device, DeviceState state) {
  Known& known = known_[static_cast<std::size_t>(device)];
  if (known.state == state) return;
  known.state = std::move(state);
  known.first = Clock::now();
}

std::optional<DeadlockSearch::Found> DeadlockSearch::poll(const std::function<DeviceState()>& describe,
                                                          Clock::time_point since, const Outgoing& out) {
  const auto now = Clock::now();
  if (now - since >= answer_after) {
    for (int asker : askers_) out.answer(asker, describe().packed());
    askers_.clear();
  }
  if (now - since < ask_after || now - lower_asked_ < defer_after_lower) return std::nullopt;
  ask(now, out);
  if (std::exchange(has_news_, false)) {
    update(me_, describe());
    known_[static_cast<std::size_t>(me_)].confirmed = now;
    prove();
  }
  if (!found_ || now - proved_ < time_to_grow()) return std::nullopt;
  return std::exchange(found_, std::nullopt);
}

void DeadlockSearch::ask(Clock::time_point now, const Outgoing& out) {
  if (!std::exchange(is_urgent_, false) && now - last_round_ < between_rounds) return;
  last_round_ = now;
  for (int d = 0; d < static_cast<int>(known_.size()); ++d) {
    Known& known = known_[static_cast<std::size_t>(d)];
    if (d == me_ || known.is_asked) continue;
    known.is_asked = true;
    known.asked = now;
    out.question(d, {});
  }
}

DeadlockSearch::Clock::duration DeadlockSearch::time_to_grow() const {
  if (found_->stuck.size() == known_.size()) return 0s;
  return is_urgent_ || std::ranges::any_of(known_, &Known::is_asked) ? for_more_devices : 0s;
}

/// Answers arrive at different times, so the last ones only suggest which devices are stuck. The proof uses one
/// moment. It knows a device's state at that moment if the first of its equal answers had arrived by then, and the
/// question for the last one was sent later.
void DeadlockSearch::prove() {
  DeviceStates last;
  for (const Known& known : known_) last.push_back(known.state);
  const std::vector<int> candidates = stuck_devices(last);
  auto moment = Clock::time_point::min();
  for (const Known& known : known_)  // also of devices that are not stuck
    if (known.first < known.confirmed) moment = std::max(moment, known.first);
  Found found;
  for (const Known& known : known_)
    found.states.push_back(known.first <= moment && moment < known.confirmed ? known.state : std::nullopt);
  found.stuck = stuck_devices(found.states);
  is_urgent_ = found.stuck.size() < candidates.size();
  if (found.stuck.empty() || (found_ && found.stuck.size() <= found_->stuck.size())) return;
  if (!found_) proved_ = Clock::now();
  found_ = std::move(found);
}

}  // namespace shard::runtime
