#include "engine/device/runtime/watchdog/deadlock.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>

#include "engine/device/runtime/groups/group.hpp"

namespace shard::runtime {

std::string pack(const std::vector<Index>& numbers, const std::string& text) {
  const auto count = static_cast<Index>(numbers.size());
  std::string bytes(sizeof(Index) * (numbers.size() + 1), '\0');
  std::memcpy(bytes.data(), &count, sizeof count);
  if (count > 0) std::memcpy(bytes.data() + sizeof count, numbers.data(), sizeof(Index) * numbers.size());
  return bytes + text;
}

std::pair<std::vector<Index>, std::string> unpack(const std::string& bytes) {
  Index count = 0;
  std::memcpy(&count, bytes.data(), sizeof count);
  std::vector<Index> numbers(static_cast<std::size_t>(count));
  const std::size_t end = sizeof(Index) * (numbers.size() + 1);
  if (count > 0) std::memcpy(numbers.data(), bytes.data() + sizeof count, end - sizeof count);
  return {numbers, bytes.substr(end)};
}

namespace {

// ---- A state as numbers, and back -------------------------------------------------------------------------

void append(std::vector<Index>& numbers, const Blocked::Dependencies& dependencies) {
  numbers.push_back(static_cast<Index>(dependencies.size()));
  for (const Blocked::Dependency& dependency : dependencies)
    numbers.insert(numbers.end(), {dependency.peer, dependency.group, dependency.slot, dependency.posts});
}

void append(std::vector<Index>& numbers, const std::vector<Blocked::Dependencies>& all) {
  numbers.push_back(static_cast<Index>(all.size()));
  for (const Blocked::Dependencies& dependencies : all) append(numbers, dependencies);
}

std::vector<Blocked::Dependencies> take_dependencies(std::vector<Index>::const_iterator& at) {
  std::vector<Blocked::Dependencies> all(static_cast<std::size_t>(*at++));
  for (Blocked::Dependencies& dependencies : all) {
    dependencies.resize(static_cast<std::size_t>(*at++));
    for (Blocked::Dependency& dependency : dependencies) {
      dependency = {at[0], at[1], at[2], at[3]};
      at += 4;
    }
  }
  return all;
}

}  // namespace

std::string DeviceState::packed() const {
  const Blocked& b = blocked;
  std::vector<Index> numbers = {calls,   b.is_polling,    b.is_at_end,
                                b.group, b.call_of_group, static_cast<Index>(b.members.size())};
  numbers.insert(numbers.end(), b.members.begin(), b.members.end());
  append(numbers, b.any_of);
  append(numbers, b.in_flight);
  for (const auto& [group, slots] : posted)
    for (const auto& [slot, count] : slots) numbers.insert(numbers.end(), {group, slot, count});
  return pack(numbers, b.call + '\n' + b.place);
}

DeviceState DeviceState::from(const std::string& bytes) {
  const auto [numbers, text] = unpack(bytes);
  DeviceState state;
  Blocked& b = state.blocked;
  b.call = text.substr(0, text.find('\n'));
  b.place = text.substr(b.call.size() + 1);
  auto at = numbers.begin();
  state.calls = *at++;
  b.is_polling = *at++ != 0;
  b.is_at_end = *at++ != 0;
  b.group = *at++;
  b.call_of_group = *at++;
  const Index members = *at++;
  b.members.assign(at, at + members);
  at += members;
  b.any_of = take_dependencies(at);
  b.in_flight = take_dependencies(at);
  for (; at != numbers.end(); at += 3) state.posted[at[0]][at[1]] = at[2];
  return state;
}

// ---- The stuck devices ------------------------------------------------------------------------------------

namespace {

/// The number of posts in a slot; the largest integer for a group that was removed long ago.
Index posted(const DeviceState& state, Index group, Index slot) {
  const auto slots = state.posted.find(group);
  if (slots == state.posted.end()) return std::numeric_limits<Index>::max();
  const auto count = slots->second.find(slot);
  return count == slots->second.end() ? 0 : count->second;
}

/// The devices that may still post: a least fixed point.
class PossibleProgress {
 public:
  explicit PossibleProgress(const DeviceStates& states) : states_(states) {
    for (const auto& state : states) may_post_.push_back(!state || state->blocked.is_polling);
    while (extend()) continue;
  }

  bool can_proceed(const Blocked& blocked) const { return any_can_complete(blocked.any_of); }

 private:
  bool any_can_complete(const std::vector<Blocked::Dependencies>& operations) const {
    return std::ranges::any_of(operations,
                               [&](const auto& dependencies) { return can_complete(dependencies); });
  }
  bool can_complete(const Blocked::Dependencies& dependencies) const {
    return std::ranges::all_of(dependencies, [&](const Blocked::Dependency& dependency) {
      const auto peer = static_cast<std::size_t>(dependency.peer);
      return may_post_[peer] || posted(*states_[peer], dependency.group, dependency.slot) >= dependency.posts;
    });
  }
  bool extend() {
    bool is_extended = false;
    for (std::size_t d = 0; d < states_.size(); ++d) {
      if (may_post_[d]) continue;
      const Blocked& blocked = states_[d]->blocked;
      may_post_[d] = any_can_complete(blocked.in_flight) || (!blocked.is_at_end && can_proceed(blocked));
      is_extended |= may_post_[d];
    }
    return is_extended;
  }

  const DeviceStates& states_;
  std::vector<bool> may_post_;  // by device
};

}  // namespace

std::vector<int> stuck_devices(const DeviceStates& states) {
  const PossibleProgress possible(states);
  std::vector<int> stuck;
  for (std::size_t d = 0; d < states.size(); ++d)
    if (states[d] && !possible.can_proceed(states[d]->blocked)) stuck.push_back(static_cast<int>(d));
  return stuck;
}

// ---- The explanation --------------------------------------------------------------------------------------

namespace {

/// The devices that this one waits for: members that have not begun its collective call, or else devices whose
/// posts are missing.
std::vector<int> awaited_devices(const DeviceStates& states, const DeviceState& state) {
  const Blocked& b = state.blocked;
  std::set<int> awaited;
  const auto calls = static_cast<Index>(Group::calls_slot);
  for (int d : b.members)
    if (const auto& other = states[static_cast<std::size_t>(d)];
        !other || posted(*other, b.group, calls) < b.call_of_group)
      awaited.insert(d);
  if (!awaited.empty()) return {awaited.begin(), awaited.end()};
  for (const Blocked::Dependencies& dependencies : b.any_of)
    for (const Blocked::Dependency& dependency : dependencies)
      if (const auto& other = states[static_cast<std::size_t>(dependency.peer)];
          !other || posted(*other, dependency.group, dependency.slot) < dependency.posts)
        awaited.insert(static_cast<int>(dependency.peer));
  return {awaited.begin(), awaited.end()};
}

std::string line_of(const DeviceStates& states, const DeviceState& state) {
  const Blocked& b = state.blocked;
  const std::vector<int> awaited = awaited_devices(states, state);
  return fmt::format("{} in {} ({}){}", b.is_polling ? "poll" : "wait", b.call, b.place,
                     awaited.empty() || b.is_at_end ? "" : " for " + devices_text(awaited));
}

/// The stuck devices, and the waiting devices that they wait for.
std::vector<int> involved_devices(const DeviceStates& states, const std::vector<int>& stuck) {
  std::set<int> involved(stuck.begin(), stuck.end());
  for (int d : stuck)
    for (int awaited : awaited_devices(states, *states[static_cast<std::size_t>(d)]))
      if (states[static_cast<std::size_t>(awaited)]) involved.insert(awaited);
  return {involved.begin(), involved.end()};
}

/// The device that waits in one call while all others, at least two, wait in another one. None if its call is a
/// collective of two: the mistake may be the other member's.
std::optional<int> alone_in_its_call(const DeviceStates& states, const std::vector<int>& involved) {
  std::map<std::string, std::vector<int>> by_call;
  for (int d : involved) by_call[states[static_cast<std::size_t>(d)]->blocked.call].push_back(d);
  if (by_call.size() != 2 || involved.size() < 3) return std::nullopt;
  for (const auto& [call, devices] : by_call) {
    if (devices.size() != 1) continue;
    const DeviceState& state = *states[static_cast<std::size_t>(devices[0])];
    if (state.blocked.members.size() != 2) return devices[0];
  }
  return std::nullopt;
}

/// The likely mistake, given the calls that the devices wait in.
std::string advice(const DeviceStates& states, const std::vector<int>& involved) {
  bool all_send = true, all_receive = true, all_collective = true, has_ended = false;
  std::set<Index> groups;
  for (int d : involved) {
    const Blocked& b = states[static_cast<std::size_t>(d)]->blocked;
    all_send &= b.call.starts_with("send") && b.group < 0;
    all_receive &= b.call.starts_with("receive") || b.call.starts_with("post_receive");
    all_collective &= b.group >= 0;
    has_ended |= b.is_at_end;
    groups.insert(b.group);
  }
  if (has_ended)
    return "a device has ended, and others wait for calls that it never made: "
           "do all make the same number of calls (uneven batches)?";
  if (all_send) return "each sends first: let one of them receive first, or post the sends";
  if (all_receive) return "each receives first: let one of them send first";
  if (all_collective && groups.size() > 1)
    return "they call the collectives of several groups in different orders, or one of a wrong group: "
           "call them in one order on all devices";
  const std::string unrelated = "they wait in calls that do not belong together: ";
  if (const std::optional<int> alone = alone_in_its_call(states, involved))
    return unrelated + fmt::format("look at what device {} alone does", *alone);
  return unrelated + "see which of them should not be there";
}

}  // namespace

std::string explain_deadlock(const DeviceStates& states, const std::vector<int>& stuck) {
  std::vector<std::pair<std::string, std::vector<int>>> lines;  // and the devices of each line
  const std::vector<int> involved = involved_devices(states, stuck);
  for (int d : involved) {
    std::string line = line_of(states, *states[static_cast<std::size_t>(d)]);
    const auto same = std::ranges::find(lines, line, [](const auto& l) { return l.first; });
    if (same == lines.end())
      lines.push_back({std::move(line), {d}});
    else
      same->second.push_back(d);
  }
  std::string text = fmt::format("deadlock: {} can never go on", devices_text(stuck));
  for (const auto& [line, devices] : lines) {
    const std::size_t verb = line.find(' ');  // "wait", of one device "waits"
    text += fmt::format("\n  {} {}{}{}", devices_text(devices), line.substr(0, verb),
                        devices.size() == 1 ? "s" : "", line.substr(verb));
  }
  return text + "\n  " + advice(states, involved);
}

}  // namespace shard::runtime
