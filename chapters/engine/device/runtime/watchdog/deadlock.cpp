#include "engine/device/runtime/watchdog/deadlock.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

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

void append(std::vector<Index>& numbers, const Blocked::Needs& needs) {
  numbers.push_back(static_cast<Index>(needs.size()));
  for (const Blocked::Need& need : needs)
    numbers.insert(numbers.end(), {need.peer, need.group, need.slot, need.entries});
}

void append(std::vector<Index>& numbers, const std::vector<Blocked::Needs>& all) {
  numbers.push_back(static_cast<Index>(all.size()));
  for (const Blocked::Needs& needs : all) append(numbers, needs);
}

std::vector<Blocked::Needs> take_needs(std::vector<Index>::const_iterator& at) {
  std::vector<Blocked::Needs> all(static_cast<std::size_t>(*at++));
  for (Blocked::Needs& needs : all) {
    needs.resize(static_cast<std::size_t>(*at++));
    for (Blocked::Need& need : needs) {
      need = {at[0], at[1], at[2], at[3]};
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
  b.any_of = take_needs(at);
  b.in_flight = take_needs(at);
  for (; at != numbers.end(); at += 3) state.posted[at[0]][at[1]] = at[2];
  return state;
}

// ---- Who can never go on ----------------------------------------------------------------------------------

namespace {

/// What the device has posted at most.
Index posted(const DeviceState& state, Index group, Index slot) {
  const auto slots = state.posted.find(group);
  if (slots == state.posted.end()) return std::numeric_limits<Index>::max();
  const auto count = slots->second.find(slot);
  return count == slots->second.end() ? 0 : count->second;
}

/// What the devices may still do. It grows until nothing is added.
class Possible {
 public:
  explicit Possible(const DeviceStates& states) : states_(states) {
    for (const auto& state : states) may_post_.push_back(!state || state->blocked.is_polling);
    while (grows()) continue;
  }

  bool goes_on(const Blocked& blocked) const { return any_is_possible(blocked.any_of); }

 private:
  bool any_is_possible(const std::vector<Blocked::Needs>& operations) const {
    return std::ranges::any_of(operations, [&](const auto& needs) { return is_possible(needs); });
  }
  bool is_possible(const Blocked::Needs& needs) const {
    return std::ranges::all_of(needs, [&](const Blocked::Need& need) {
      const auto peer = static_cast<std::size_t>(need.peer);
      return may_post_[peer] || posted(*states_[peer], need.group, need.slot) >= need.entries;
    });
  }
  bool grows() {
    bool has_grown = false;
    for (std::size_t d = 0; d < states_.size(); ++d) {
      if (may_post_[d]) continue;
      const Blocked& blocked = states_[d]->blocked;
      may_post_[d] = any_is_possible(blocked.in_flight) || (!blocked.is_at_end && goes_on(blocked));
      has_grown |= may_post_[d];
    }
    return has_grown;
  }

  const DeviceStates& states_;
  std::vector<bool> may_post_;  // by device
};

}  // namespace

std::vector<int> stuck_devices(const DeviceStates& states) {
  const Possible possible(states);
  std::vector<int> stuck;
  for (std::size_t d = 0; d < states.size(); ++d)
    if (states[d] && !possible.goes_on(states[d]->blocked)) stuck.push_back(static_cast<int>(d));
  return stuck;
}

// ---- The explanation --------------------------------------------------------------------------------------

namespace {

/// Whom a device waits for: the members that have not come to its collective call, or else the devices that
/// have not met its needs.
std::vector<int> awaited_devices(const DeviceStates& states, const DeviceState& state) {
  const Blocked& b = state.blocked;
  std::set<int> awaited;
  const auto calls = static_cast<Index>(Group::calls_slot);
  for (int d : b.members)
    if (const auto& other = states[static_cast<std::size_t>(d)];
        !other || posted(*other, b.group, calls) < b.call_of_group)
      awaited.insert(d);
  if (!awaited.empty()) return {awaited.begin(), awaited.end()};
  for (const Blocked::Needs& needs : b.any_of)
    for (const Blocked::Need& need : needs)
      if (const auto& other = states[static_cast<std::size_t>(need.peer)];
          !other || posted(*other, need.group, need.slot) < need.entries)
        awaited.insert(static_cast<int>(need.peer));
  return {awaited.begin(), awaited.end()};
}

std::string line_of(const DeviceStates& states, const DeviceState& state) {
  const Blocked& b = state.blocked;
  const std::vector<int> awaited = awaited_devices(states, state);
  return fmt::format("{} in {} ({}){}", b.is_polling ? "poll" : "wait", b.call, b.place,
                     awaited.empty() || b.is_at_end ? "" : " for " + devices_text(awaited));
}

/// The stuck devices, and those that they wait for, as far as these wait, too.
std::vector<int> involved_devices(const DeviceStates& states, const std::vector<int>& stuck) {
  std::set<int> involved(stuck.begin(), stuck.end());
  for (int d : stuck)
    for (int awaited : awaited_devices(states, *states[static_cast<std::size_t>(d)]))
      if (states[static_cast<std::size_t>(awaited)]) involved.insert(awaited);
  return {involved.begin(), involved.end()};
}

/// The device that waits in a call of its own, while all others wait in another one, and are at least two. In a
/// collective of two it may be the other one that has left it out.
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

/// What a reader should look for, from the calls that the devices wait in.
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
  std::vector<std::pair<std::string, std::vector<int>>> lines;  // and who waits so
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
