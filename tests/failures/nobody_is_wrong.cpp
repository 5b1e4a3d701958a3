// Programs without a mistake, whose devices are slow, poll, or let others wait.

#include <sstream>

#include "tests/failures/misbehave.hpp"
#include "tests/harness/delays.hpp"

namespace {

/// Sends a message back and forth between devices 1 and 2, while the others wait long enough to search for a
/// deadlock.
void play_slowly() {
  for (int turn = 0; turn < 8; ++turn) {
    std::this_thread::sleep_for(300ms);
    if ((turn + me()) % 2 == 0)
      group().send(3 - me(), Tensor({2}));
    else
      group().receive(3 - me());
  }
}

/// Device 0 polls a message for 2 s, and then sends what the message's sender waits for.
void poll_and_then_send() {
  if (me() == 1) {
    group().receive(0);
    group().send(0, Tensor({2}));
    return;
  }
  Future<Tensor> message = group().post_receive(1, {2});
  for (const auto start = std::chrono::steady_clock::now(); std::chrono::steady_clock::now() - start < 2s;)
    (void)message.ready();
  group().send(1, Tensor({2}));
  message.get();
}

void play_slowly_without_0() {
  if (me() != 0) play_slowly();
  all_reduce();
}

void print_while_0_waits() {
  Future<Tensor> future = group().all_gather_async(Tensor({3}), 0);
  std::ostringstream out;
  if (me() == 0) future.get();
  print_in_device_order(group(), out, "mine:", Tensor({2}));
  if (me() != 0) future.get();
}

int drop_a_future_on_0() {
  Future<Tensor> future = group().all_gather_async(Tensor({3}), 0);
  if (me() == 0) return 0;
  return future.get().size() == 3 * devices() ? 0 : 1;
}

void drop_messages_on_0() {
  if (me() == 0) {
    (void)group().post_receive(devices() - 1, {100'000});
    (void)group().post_send(1, Tensor({100'000}));
    return;
  }
  std::this_thread::sleep_for(300ms);
  group().send(right(), group().receive(left()));
}

void print_before_messages_are_met() {
  Future<Tensor> received, early;
  Future<> sent;
  if (me() == 0) {
    received = group().post_receive(1, {100'000});
    sent = group().post_send(2, Tensor({100'000}));
    early = group().post_receive(2, {100'000});
  }
  if (me() == 1) sent = group().post_send(2, Tensor({100'000}));
  if (me() == 2) received = group().post_receive(1, {100'000});
  if (me() == 2) group().receive(0), group().send(0, Tensor({100'000}));
  std::ostringstream out;
  print_in_device_order(group(), out, "mine:", Tensor({2}));
  if (me() == 1) group().send(0, Tensor({100'000}));
  early.get(), received.get(), sent.wait();
}

/// From now on, messages of calls reach this device up to half a second late.
void hear_late() {
  testing::delay_messages({.of_calls = 1, .of_control = 0, .longest = 500ms});
}

void meet_in_a_group_that_1_removes_soon() {
  if (me() == 0) hear_late();
  const std::unique_ptr<Communicator> pair = group().split(0, me());
  me() == 0 ? (void)pair->receive(1) : pair->send(0, Tensor({2}));
}

/// The devices disagree on a call. After its error they exchange a message.
void disagree_and_send() {
  if (me() == 1) hear_late();
  try {
    group().all_reduce_async(Tensor({me() + 2}), ReduceOp::sum).get();
  } catch (const Error&) {
    me() == 0 ? (void)group().receive(1) : group().send(0, Tensor({2}));
  }
}

void catch_a_deadlock_and_go_on() {
  try {
    group().receive(1 - me());
  } catch (const Error&) {
    all_reduce();
  }
}

}  // namespace

const std::vector<Case> nobody_is_wrong = {
    {"1_returns_86", {3}, 86, {}, [] { return me() == 1 ? 86 : 0; }},
    {"returns_80_plus_id", {3}, 82, {}, [] { return 80 + me(); }},
    {"1_is_slow", {3}, 0, {}, only(1, all_reduce_late, all_reduce), Where::cuda_too},
    {"0_is_slow", {3}, 0, {}, only(0, all_reduce_late, all_reduce), Where::emulator},
    {"0_waits_for_a_slow_game", {3}, 0, {}, play_slowly_without_0, Where::emulator},
    {"0_polls_while_1_is_slow", {3}, 0, {}, only(1, all_reduce_late, poll_all_reduce), Where::cuda_too},
    {"1_prints_while_0_waits", {2}, 0, {}, print_while_0_waits},
    {"0_drops_a_future_and_ends", {3}, 0, {}, drop_a_future_on_0},
    {"0_drops_messages_and_ends", {3}, 0, {}, drop_messages_on_0, Where::everywhere},
    {"0_polls_and_then_sends", {2}, 0, {}, poll_and_then_send, Where::everywhere},
    {"1_hears_late_that_all_have_ended", {3}, 0, {}, only(1, hear_late, nothing), Where::emulator},
    {"0_hears_late_of_a_group_that_1_has_removed",
     {2},
     0,
     {},
     meet_in_a_group_that_1_removes_soon,
     Where::emulator},
    {"1_hears_late_that_both_disagree", {2}, 0, {}, disagree_and_send, Where::emulator},
    {"both_catch_a_deadlock_and_go_on", {2}, 0, {}, catch_a_deadlock_and_go_on},
    {"0_prints_before_its_messages_are_met", {3}, 0, {}, print_before_messages_are_met, Where::everywhere},
};
