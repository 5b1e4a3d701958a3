#include "engine/device/runtime/watchdog/deadlock.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "engine/device/gathered.hpp"
#include "engine/device/runtime/watchdog/message_counts.hpp"
#include "engine/device/runtime/watchdog/post_counts.hpp"

namespace shard::runtime {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Blocked::Dependency, peer, group, slot, posts)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Blocked, call, place, any_of, in_flight, is_polling, is_at_end, group,
                                   members, call_of_group)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DeviceState, blocked, posted, calls)

std::string devices_text(std::vector<int> devices) {
  std::ranges::sort(devices);
  std::vector<std::string> runs;
  for (std::size_t first = 0, next; first < devices.size(); first = next) {
    for (next = first + 1; next < devices.size() && devices[next] == devices[next - 1] + 1;) ++next;
    if (next - first > 2)
      runs.push_back(fmt::format("{} to {}", devices[first], devices[next - 1]));
    else
      for (std::size_t i = first; i < next; ++i) runs.push_back(fmt::to_string(devices[i]));
  }
  return fmt::format("device{} {}", devices.size() == 1 ? "" : "s", fmt::join(runs, ", "));
}

std::string DeviceState::packed() const {
  return to_bytes(*this);
}

DeviceState DeviceState::from(const std::string& bytes) {
  return from_bytes<DeviceState>(bytes);
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

}  // namespace

std::vector<int> stuck_devices(const DeviceStates& states) {
  std::vector<bool> may_post;  // by device: a least fixed point
  for (const auto& state : states) may_post.push_back(!state || state->blocked.is_polling);
  auto can_complete = [&](const Blocked::Dependencies& dependencies) {
    return std::ranges::all_of(dependencies, [&](const Blocked::Dependency& dependency) {
      const auto peer = static_cast<std::size_t>(dependency.peer);
      return may_post[peer] || posted(*states[peer], dependency.group, dependency.slot) >= dependency.posts;
    });
  };
  auto can_proceed = [&](const Blocked& blocked) {
    return std::ranges::any_of(blocked.any_of, can_complete);
  };
  for (bool is_extended = true; std::exchange(is_extended, false);)
    for (std::size_t d = 0; d < states.size(); ++d) {
      if (may_post[d]) continue;
      const Blocked& blocked = states[d]->blocked;
      may_post[d] = std::ranges::any_of(blocked.in_flight, can_complete) ||
                    (!blocked.is_at_end && can_proceed(blocked));
      is_extended = is_extended || may_post[d];
    }
  std::vector<int> stuck;
  for (std::size_t d = 0; d < states.size(); ++d)
    if (states[d] && !can_proceed(states[d]->blocked)) stuck.push_back(static_cast<int>(d));
  return stuck;
}

// ---- The explanation --------------------------------------------------------------------------------------

namespace {

/// The devices that this one waits for: members that have not begun its collective call, or else devices whose
/// posts are missing.
std::vector<int> awaited_devices(const DeviceStates& states, const DeviceState& state) {
  const Blocked& b = state.blocked;
  std::set<int> awaited;
  const auto calls = static_cast<Index>(PostCounts::calls_slot);
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
    return "a device has ended, and others wait for calls that it never made: do all make the same number of "
           "calls (uneven batches)?";
  if (all_send) return "each sends first: let one of them receive first, or post the sends";
  if (all_receive) return "each receives first: let one of them send first";
  if (all_collective && groups.size() > 1)
    return "they call the collectives of several groups in different orders, or one of a wrong group: call "
           "them in one order on all devices";
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

void throw_deadlock(const std::string& line) {
  MessageCounts::instance().forget();
  throw Error(Code::deadlock, line);
}

}  // namespace shard::runtime
