#include "emu/local/turns.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <utility>

#include "engine/device/runtime/watchdog/control_plane.hpp"

namespace shard::local {

Turns& Turns::instance() {
  static auto* turns = new Turns;  // never destroyed: static tensors may outlive any other static
  return *turns;
}

void Turns::run(int devices, const std::function<void()>& body) {
  ++job_;
  auto noting_errors = [&] {
    try {
      body();
    } catch (...) {
      if (error_ == nullptr) error_ = std::current_exception();
    }
  };
  for (int d = 0; d < devices; ++d) {
    seats_.push_back(std::make_unique<Seat>(d));
    seats_.back()->fibre = std::make_unique<Fibre>(noting_errors);
  }
  may_go_on_.assign(seats_.size(), true);
  auto has_ended = [](const auto& seat) { return seat->fibre->has_ended(); };
  while (error_ == nullptr && !std::ranges::all_of(seats_, has_ended)) let_each_go_on();
  if (error_ == nullptr) return seats_.clear();
  for (auto& seat : seats_)
    if (!has_ended(seat)) static_cast<void>(seat.release());  // it is in the middle of something
  seats_.clear();
  std::rethrow_exception(std::exchange(error_, nullptr));
}

void Turns::let_each_go_on() {
  const std::size_t before = moves_;
  if (std::ranges::find(may_go_on_, true) == may_go_on_.end()) may_go_on_.assign(seats_.size(), true);
  for (std::size_t d = 0; d < seats_.size() && error_ == nullptr; ++d) {
    if (!may_go_on_[d]) continue;
    may_go_on_[d] = false;
    running_ = seats_[d].get();
    const Device::Scope scope(running_->device);
    if (!running_->fibre->has_ended()) running_->fibre->resume();
    if (running_->fibre->has_ended()) running_->describe = nullptr;
  }
  rounds_without_move_ = moves_ == before ? rounds_without_move_ + 1 : 0;
  // One that polls may do so for long: it is asked less and less often what it asks for. And some may wait for
  // ever while others go on.
  constexpr std::size_t rounds_between_searches = std::size_t{1} << 16;
  if (std::has_single_bit(rounds_without_move_) || ++rounds_ % rounds_between_searches == 0)
    search_for_deadlock();
}

void Turns::pass(const std::function<runtime::Blocked()>& describe) {
  Seat& mine = *running_;
  mine.describe = &describe;
  mine.fibre->suspend();
  mine.describe = nullptr;
  if (mine.verdict) runtime::throw_deadlock(*std::exchange(mine.verdict, std::nullopt));
}

void Turns::lend() {
  constexpr std::size_t pieces_in_a_turn = 64;
  if (++running_->pieces_of_work % pieces_in_a_turn != 0) return;
  note_move();
  wake(running_->device.id);
  running_->fibre->suspend();
}

std::optional<runtime::DeviceState> Turns::state_of(Seat& seat) {
  if (seat.describe == nullptr) return std::nullopt;
  const Device::Scope scope(seat.device);
  return runtime::ControlPlane::instance().my_state((*seat.describe)());
}

void Turns::print() const {
  for (const auto& seat : seats_) {
    const std::optional<runtime::DeviceState> state = state_of(*seat);
    const std::string place = to_string(seat->device.open_call);
    fmt::print(stderr, "device {} {}\n", seat->device.id,
               state ? fmt::format("waits in {} ({})", state->blocked.call, state->blocked.place)
                     : fmt::format("runs{}", place.empty() ? "" : ", in a call at " + place));
  }
}

void print_devices() {
  Turns::instance().print();
}

/// No device runs now, so these are the states of one moment.
void Turns::search_for_deadlock() {
  runtime::DeviceStates states(seats_.size());
  for (std::size_t d = 0; d < seats_.size(); ++d) states[d] = state_of(*seats_[d]);
  const std::vector<int> stuck = runtime::stuck_devices(states);
  if (stuck.empty()) return;
  const std::string line = runtime::explain_deadlock(states, stuck);
  for (int d : stuck) seats_[static_cast<std::size_t>(d)]->verdict = line, wake(d);
  note_move();
}

}  // namespace shard::local
