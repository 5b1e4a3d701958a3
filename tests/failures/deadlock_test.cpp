// Finds stuck devices from the states of all, and searches for them by questions and answers. Without MPI.

#include "engine/device/runtime/watchdog/deadlock.hpp"

#include <set>
#include <thread>

#include "engine/device/runtime/processes/deadlock_search.hpp"
#include "tests/harness/catch.hpp"

using namespace shard;
using namespace shard::runtime;

namespace {

RUNS_ON(.in_one_process = {}, .processes = {1});

using namespace std::chrono_literals;

constexpr Index world = 0;

/// The state of device `me`, which waits until each peer has counted a post in the slot 10 + me.
DeviceState waits_for(int me, const std::vector<int>& peers, bool is_polling = false) {
  DeviceState state;
  Blocked::Dependencies needs;
  for (int peer : peers) needs.push_back({peer, world, 10 + me, 1});
  state.blocked.call = "receive";
  state.blocked.place = "call 1";
  state.blocked.any_of = {needs};
  state.blocked.in_flight = {needs};
  state.blocked.is_polling = is_polling;
  state.posted[world][0] = 0;
  return state;
}

DeviceState at_end(int me, const std::vector<int>& peers) {
  DeviceState state = waits_for(me, peers);
  state.blocked.call = "the end of the program";
  state.blocked.in_flight.clear();
  state.blocked.is_at_end = true;
  return state;
}

/// The deadlock that device 0 finds among three devices. `mine` is its own state. answer(device, after) is another
/// device's answer at this time after the start, or nothing if it does not answer. The search ends after `limit`.
using Answer = std::function<std::optional<DeviceState>(int device, DeadlockSearch::Clock::duration after)>;
std::optional<DeadlockSearch::Found> found_by_0(const DeviceState& mine, const Answer& answer,
                                                DeadlockSearch::Clock::duration limit = 4s) {
  const auto start = DeadlockSearch::Clock::now();
  DeadlockSearch search(0, 3);
  std::set<int> asked;
  const DeadlockSearch::Outgoing out = {[&](int to, const std::string&) { asked.insert(to); },
                                        [](int, const std::string&) {}};
  while (DeadlockSearch::Clock::now() - start < limit) {
    if (auto found = search.poll([&] { return mine; }, start - 1s, out)) return found;
    std::this_thread::sleep_for(1ms);
    for (int device : std::set(asked))
      if (const auto state = answer(device, DeadlockSearch::Clock::now() - start)) {
        asked.erase(device);
        search.on_answer(device, state->packed());
      }
  }
  return std::nullopt;
}

}  // namespace

TEST_CASE("a search finds all that are stuck, whoever answers late") {
  const std::vector<DeviceState> states = {waits_for(0, {1}, true), at_end(1, {0, 2}),
                                           waits_for(2, {1}, true)};
  for (int late : {1, 2}) {
    CAPTURE(late);
    const auto found = found_by_0(states[0], [&](int device, auto after) {
      return device == late && after < 300ms ? std::nullopt : std::optional(states[std::size_t(device)]);
    });
    REQUIRE(found);
    CHECK(found->stuck == std::vector<int>{0, 2});
  }
}

TEST_CASE("a search finds devices that are stuck while another one talks, or is silent") {
  for (bool talks : {false, true}) {
    CAPTURE(talks);
    const auto found = found_by_0(waits_for(0, {1}), [&](int device, auto after) {
      if (device == 1) return std::optional(waits_for(1, {0}));
      DeviceState state = waits_for(2, {});  // for no post: it runs
      state.calls = after / 30ms;
      return talks ? std::optional(state) : std::nullopt;
    });
    REQUIRE(found);
    CHECK(found->stuck == std::vector<int>{0, 1});
  }
}

TEST_CASE("a search accuses nobody that looks stuck in every answer, and goes on between them") {
  Index answers = 0;
  const auto found = found_by_0(
      waits_for(0, {1}),
      [&](int device, auto) {
        DeviceState state = waits_for(device, {device == 1 ? 0 : 1});
        state.calls = ++answers;
        return std::optional(state);
      },
      500ms);
  CHECK(answers > 2);
  CHECK_FALSE(found);
}

TEST_CASE("devices are stuck if nobody that can go on has still to post what they wait for") {
  using Stuck = std::vector<int>;
  const DeviceState of_1 = waits_for(0, {1}), of_0 = waits_for(1, {0}), polls = waits_for(0, {1}, true);
  const auto running = std::nullopt;
  DeviceState has_sent = of_0, has_removed = of_0, busy = of_0, polls_two = polls, for_its_own = of_1;
  has_sent.posted[world][10] = 1;
  has_removed.posted.clear();  // of a group that was removed long ago, anything may be on its way
  busy.blocked.in_flight.push_back({{2, world, 30, 1}});  // in the background
  polls_two.blocked.any_of.push_back({{2, world, 10, 1}});
  for_its_own.blocked.any_of = for_its_own.blocked.in_flight;
  const struct {
    const char* what;
    std::vector<std::optional<DeviceState>> devices;
    Stuck stuck;
  } rows[] = {
      {"a circle, and one that runs", {of_1, of_0, running}, {0, 1}},
      {"a circle of others", {running, waits_for(1, {2}), waits_for(2, {1})}, {1, 2}},
      {"who waits for one that waits for one that runs", {of_1, waits_for(1, {2}), running}, {}},
      {"who waits for two, of which one runs", {waits_for(0, {1, 2}), of_0, running}, {0, 1}},
      {"a need that has been met", {of_1, has_sent}, {}},
      {"a group that has been removed", {of_1, has_removed}, {}},
      {"who polls may do anything", {polls, of_0}, {}},
      {"who polls for one at its end", {polls, at_end(1, {0})}, {0}},
      {"who waits for one at its end", {of_1, at_end(1, {0})}, {0, 1}},
      {"an operation in the background, of one that runs", {of_1, busy, running}, {}},
      {"who polls two calls of devices at their end", {polls_two, at_end(1, {0}), at_end(2, {0})}, {0}},
      {"who polls two calls, one of which can be done", {polls_two, at_end(1, {0}), waits_for(2, {0})}, {}},
      {"operations of its own, for one that waits", {for_its_own, of_0}, {0, 1}},
      {"operations of its own, for one that runs", {for_its_own, running}, {}},
  };
  for (const auto& row : rows) {
    INFO(row.what);
    CHECK(stuck_devices(row.devices) == row.stuck);
  }
}

TEST_CASE("a state is the same after a message") {
  DeviceState state = waits_for(2, {0, 1}, true);
  state.posted[world][3] = 7;
  state.posted[5][4] = 1;
  state.calls = 12;
  state.blocked.group = 5;
  state.blocked.members = {4, 1, 3};
  state.blocked.call_of_group = 9;
  CHECK(DeviceState::from(state.packed()) == state);
  state.blocked.any_of.push_back({});
  state.blocked.is_at_end = true;
  CHECK(DeviceState::from(state.packed()) == state);
}
