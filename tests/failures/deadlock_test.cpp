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

TEST_CASE("devices in a circle are stuck, whoever else runs") {
  CHECK(stuck_devices({waits_for(0, {1}), waits_for(1, {0}), std::nullopt}) == std::vector<int>{0, 1});
  CHECK(stuck_devices({std::nullopt, waits_for(1, {2}), waits_for(2, {1})}) == std::vector<int>{1, 2});
}

TEST_CASE("a device that waits for one that runs is not stuck, nor who waits for it") {
  CHECK(stuck_devices({waits_for(0, {1}), waits_for(1, {2}), std::nullopt}).empty());
  CHECK(stuck_devices({waits_for(0, {1, 2}), waits_for(1, {0}), std::nullopt}) == std::vector<int>{0, 1});
}

TEST_CASE("a need that has been met is on its way") {
  DeviceState has_sent = waits_for(1, {0});
  has_sent.posted[world][10] = 1;
  CHECK(stuck_devices({waits_for(0, {1}), has_sent}).empty());
  has_sent.posted[world][10] = 0;
  CHECK(stuck_devices({waits_for(0, {1}), has_sent}) == std::vector<int>{0, 1});
}

TEST_CASE("of a group that was removed long ago, anything may be on its way") {
  DeviceState has_removed = waits_for(1, {0});
  has_removed.posted.clear();
  CHECK(stuck_devices({waits_for(0, {1}), has_removed}).empty());
}

TEST_CASE("a device that polls may do anything") {
  CHECK(stuck_devices({waits_for(0, {1}, true), waits_for(1, {0})}).empty());
}

TEST_CASE("a call that needs a device at its end can never be done, polled or waited for") {
  CHECK(stuck_devices({waits_for(0, {1}, true), at_end(1, {0})}) == std::vector<int>{0});
  CHECK(stuck_devices({waits_for(0, {1}), at_end(1, {0})}) == std::vector<int>{0, 1});
}

TEST_CASE("an operation that goes on in the background may post what others need") {
  DeviceState busy = waits_for(1, {0});
  busy.blocked.in_flight.push_back({{2, world, 30, 1}});  // of device 2, which runs
  CHECK(stuck_devices({waits_for(0, {1}), busy, std::nullopt}).empty());
  busy.blocked.in_flight.pop_back();
  CHECK(stuck_devices({waits_for(0, {1}), busy, std::nullopt}) == std::vector<int>{0, 1});
}

TEST_CASE("a device that polls two calls is stuck when neither can ever be done") {
  DeviceState polls = waits_for(0, {1}, true);
  polls.blocked.any_of.push_back({{2, world, 10, 1}});
  CHECK(stuck_devices({polls, at_end(1, {0}), at_end(2, {0})}) == std::vector<int>{0});
  CHECK(stuck_devices({polls, at_end(1, {0}), waits_for(2, {0})}).empty());
}

TEST_CASE("a device that waits only for its own other operations goes on with any of them") {
  DeviceState state = waits_for(0, {1});
  state.blocked.any_of = state.blocked.in_flight;
  CHECK(stuck_devices({state, waits_for(1, {0})}) == std::vector<int>{0, 1});
  CHECK(stuck_devices({state, std::nullopt}).empty());
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
