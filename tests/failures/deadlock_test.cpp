// Which devices can never go on, from what they say of themselves: no MPI, and no time.

#include "engine/device/runtime/deadlock.hpp"

#include "tests/harness/catch.hpp"

using namespace shard;
using namespace shard::runtime;

namespace {

const testing::RunsOn runs_on({1});

constexpr Index world = 0;

/// A device that waits until each of these has posted to its slot for it: slot `10 + awaiting` of the peer.
DeviceState waits_for(int me, const std::vector<int>& peers, bool is_polling = false) {
  DeviceState state;
  Blocked::Needs needs;
  for (int peer : peers) needs.push_back({peer, world, 10 + me, 1});
  state.blocked.call = "receive";
  state.blocked.place = "call 1";
  state.blocked.needs = needs;
  state.blocked.in_flight = {needs};
  state.blocked.is_polling = is_polling;
  return state;
}

DeviceState at_end(int me, const std::vector<int>& peers) {
  DeviceState state = waits_for(me, peers);
  state.blocked.call = "the end of the program";
  state.blocked.in_flight.clear();
  state.blocked.is_at_end = true;
  return state;
}

}  // namespace

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

TEST_CASE("a device that waits only for its own other operations goes on with any of them") {
  DeviceState state = waits_for(0, {1});
  state.blocked.needs.reset();
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
  state.blocked.needs.reset();
  state.blocked.is_at_end = true;
  CHECK(DeviceState::from(state.packed()) == state);
}
