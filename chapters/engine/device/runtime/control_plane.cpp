#include "engine/device/runtime/control_plane.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "engine/device/runtime/header.hpp"
#include "engine/device/runtime/message_counts.hpp"
#include "engine/device/this_device.hpp"

namespace shard::runtime {

namespace {

constexpr std::size_t groups_remembered = 256;

/// The first slot, and those that are not 0.
std::map<Index, Index> by_slot(const std::vector<Index>& counts) {
  std::map<Index, Index> some;
  for (std::size_t slot = 0; slot < counts.size(); ++slot)
    if (slot == 0 || counts[slot] != 0) some[static_cast<Index>(slot)] = counts[slot];
  return some;
}

}  // namespace

void print_error(const std::string& line) {
  constexpr std::size_t longest = 1 << 16;
  std::string text = "error: ";
  for (const char c : line.substr(0, longest)) {
    const bool is_control = (static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7f;
    text += is_control ? fmt::format("\\x{:02x}", c) : std::string(1, c);
  }
  if (line.size() > longest) text += "...";
  text += '\n';
  std::fflush(stdout);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

void throw_deadlock(const std::string& line) {
  MessageCounts::instance().forget();
  throw Error(Code::deadlock, line);
}

ControlPlane& ControlPlane::instance() {
  return device().part<ControlPlane>();
}

void ControlPlane::keep_going(std::function<void()> advance,
                              std::function<std::vector<Blocked::Needs>()> in_flight,
                              std::function<Index()> calls) {
  advance_ = std::move(advance);
  in_flight_ = std::move(in_flight);
  calls_ = std::move(calls);
}

void ControlPlane::wait_for(const std::string& what, Blocked::Needs needs,
                            const std::function<bool()>& is_done) {
  const SourceLine where = current_call_site();
  auto describe = [&] {
    Blocked blocked;
    blocked.call = what;
    blocked.place = is_at_end_ ? fmt::format("after {} calls", calls_()) : place_of_call(calls_(), where);
    blocked.any_of = {needs};
    blocked.in_flight = in_flight_();
    blocked.is_at_end = is_at_end_;
    return blocked;
  };
  for (Wait wait; !is_done(); wait.idle(describe)) advance_();
}

DeviceState ControlPlane::my_state(Blocked blocked) const {
  DeviceState state{std::move(blocked), removed_, calls_()};
  for (const auto& [group, counts] : posted_) state.posted[group] = by_slot(*counts);
  return state;
}

void ControlPlane::remove(Index group) {
  removed_[group] = by_slot(*posted_.at(group));
  posted_.erase(group);
  if (removed_.size() > groups_remembered) removed_.erase(removed_.begin());
}

}  // namespace shard::runtime
