#include "emu/local/scheduler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <utility>

#include "engine/device/runtime/witness.hpp"

namespace shard::local {

namespace {

std::unique_ptr<Scheduler>& current() {
  // Never destroyed: static tensors may outlive any other static.
  static auto* scheduler = new auto(std::make_unique<Scheduler>());
  return *scheduler;
}

}  // namespace

Scheduler& Scheduler::instance() {
  return *current();
}

void Scheduler::run(int devices, const std::function<void()>& body, Absence* absence) {
  std::unique_ptr<Scheduler> outer = std::exchange(current(), std::make_unique<Scheduler>());
  Scheduler& mine = instance();
  if (absence != nullptr) mine.absence_ = absence;
  for (int d = 0; d < devices; ++d) mine.scheduled_.push_back(std::make_unique<Scheduled>(d));
  mine.run_all(body);
  const std::exception_ptr error = mine.error_;
  current() = std::move(outer);
  if (error != nullptr) std::rethrow_exception(error);
}

void Scheduler::run_all(const std::function<void()>& body) {
  auto noting_errors = [&] {
    try {
      body();
    } catch (...) {
      if (error_ == nullptr) error_ = std::current_exception();
    }
  };
  for (auto& scheduled : scheduled_)
    if (!absence_->devices.contains(scheduled->device.id))
      scheduled->fibre = std::make_unique<Fibre>(noting_errors);
  runnable_.assign(scheduled_.size(), true);
  auto has_ended = [](const auto& scheduled) { return !scheduled->fibre || scheduled->fibre->has_ended(); };
  while (error_ == nullptr && !std::ranges::all_of(scheduled_, has_ended)) run_round();
  for (auto& scheduled : scheduled_)
    if (!has_ended(scheduled)) static_cast<void>(scheduled.release());  // leaked: its body is suspended
  scheduled_.clear();
}

void Scheduler::run_round() {
  const std::size_t before = progress_;
  if (std::ranges::find(runnable_, true) == runnable_.end()) runnable_.assign(scheduled_.size(), true);
  for (std::size_t d = 0; d < scheduled_.size() && error_ == nullptr; ++d) {
    if (!runnable_[d]) continue;
    runnable_[d] = false;
    running_ = scheduled_[d].get();
    const Device::Scope scope(running_->device);
    Fibre* fibre = running_->fibre.get();
    if (fibre != nullptr && !fibre->has_ended()) fibre->resume();
    if (fibre == nullptr || fibre->has_ended()) running_->describe = nullptr;
  }
  rounds_without_progress_ = progress_ == before ? rounds_without_progress_ + 1 : 0;
  // A device may poll for long, so without progress the searches become rarer. With progress there are searches,
  // too, since some devices may be stuck while others proceed.
  constexpr std::size_t rounds_between_searches = std::size_t{1} << 16;
  if (std::has_single_bit(rounds_without_progress_) || ++rounds_ % rounds_between_searches == 0)
    search_for_deadlock();
}

void Scheduler::wait(const std::function<runtime::Blocked()>& describe) {
  Scheduled& mine = *running_;
  mine.describe = &describe;
  mine.fibre->suspend();
  mine.describe = nullptr;
  if (mine.deadlock) runtime::throw_deadlock(*std::exchange(mine.deadlock, std::nullopt));
}

void Scheduler::yield() {
  constexpr std::size_t pieces_in_a_turn = 64;
  if (++running_->pieces_of_work % pieces_in_a_turn != 0) return;
  note_progress();
  wake(running_->device.id);
  running_->fibre->suspend();
}

std::optional<runtime::DeviceState> Scheduler::state_of(Scheduled& scheduled) {
  if (scheduled.describe == nullptr) return std::nullopt;
  const Device::Scope scope(scheduled.device);
  return runtime::state_of_device((*scheduled.describe)());
}

void Scheduler::print() const {
  for (const auto& scheduled : scheduled_) {
    const std::optional<runtime::DeviceState> state = state_of(*scheduled);
    const std::string place = to_string(scheduled->device.open_call);
    fmt::print(stderr, "device {} {}\n", scheduled->device.id,
               state ? fmt::format("waits in {} ({})", state->blocked.call, state->blocked.place)
                     : fmt::format("runs{}", place.empty() ? "" : ", in a call at " + place));
  }
}

void print_devices() {
  Scheduler::instance().print();
}

/// No device runs meanwhile, so all states are of one moment.
void Scheduler::search_for_deadlock() {
  runtime::DeviceStates states(scheduled_.size());
  for (std::size_t d = 0; d < scheduled_.size(); ++d) states[d] = state_of(*scheduled_[d]);
  const std::vector<int> stuck = runtime::stuck_devices(states);
  if (stuck.empty()) return;
  const std::string line = runtime::explain_deadlock(states, stuck);
  for (int d : stuck) scheduled_[static_cast<std::size_t>(d)]->deadlock = line, wake(d);
  note_progress();
}

}  // namespace shard::local
