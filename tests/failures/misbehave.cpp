// misbehave CASE: a program whose devices go wrong in the way of that name, and how its job must end then. Cases that
// are no mistake, only slow, are among them: they must end well.

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "engine/device/device.hpp"
#include "engine/device/runtime/control_plane.hpp"
#include "tests/harness/cases.hpp"
#include "tests/harness/devices.hpp"

using namespace shard;
using namespace std::chrono_literals;
using testing::Case;
using testing::group;
using testing::Where;

namespace {

constexpr int last = -1;  // the device with the highest number

int me() {
  return group().device_id();
}
int devices() {
  return group().num_devices();
}
int right() {
  return (me() + 1) % devices();
}
int left() {
  return (me() + devices() - 1) % devices();
}
void all_reduce() {
  group().all_reduce_async(Tensor({5}), ReduceOp::sum).get();
}
void all_reduce_late() {
  std::this_thread::sleep_for(3s);
  all_reduce();
}
void poll_all_reduce() {
  Future<Tensor> future = group().all_reduce_async(Tensor({5}), ReduceOp::sum);
  while (!future.ready()) continue;
  future.get();
}
void exchange_a_number() {
  group().exchange("a number", 1);
}
void nothing() {}

/// Device `culprit` does the first thing, the others the second.
template <class Wrong, class Meanwhile>
auto only(int culprit, Wrong wrong, Meanwhile meanwhile) {
  return [=] { me() == (culprit == last ? devices() - 1 : culprit) ? wrong() : meanwhile(); };
}
void throw_file_error() {
  throw Error(Code::file, fmt::format("device {}: no such file", me()));
}

// ---- Bodies of more than a line ---------------------------------------------------------------------------

void send_to_the_right() {
  group().send(right(), Tensor({3}));
  group().receive(left());
}
void receive_from_the_left() {
  group().receive(left());
  group().send(right(), Tensor({3}));
}
void send_to_a_dst_of_another_shape() {
  const Tensor src({3});
  Tensor dst({me() == 1 ? 4 : 3});
  group().send_async(src, dst, right()).wait();
}
/// Everybody posts `sent` elements to the right; device 1 expects another number from the left.
void expect_another_length(Index sent, Index expected_on_1) {
  Future<> on_its_way = group().post_send(right(), Tensor({sent}));
  group().post_receive(left(), {me() == 1 ? expected_on_1 : sent}).get();
  on_its_way.wait();
}

/// A message back and forth between devices 1 and 2, with pauses, for longer than anybody's patience.
void play_slowly() {
  for (int turn = 0; turn < 8; ++turn) {
    std::this_thread::sleep_for(300ms);
    if ((turn + me()) % 2 == 0)
      group().send(3 - me(), Tensor({2}));
    else
      group().receive(3 - me());
  }
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
    group().post_receive(devices() - 1, {100'000});
    group().post_send(1, Tensor({100'000}));
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

/// Each device meets the next one in a group of the two before the one before it: nobody comes first.
void meet_in_groups_of_two() {
  std::unique_ptr<Communicator> with_next, with_previous;
  for (int first = 0; first < devices(); ++first) {
    const bool is_first = me() == first, is_second = me() == (first + 1) % devices();
    std::unique_ptr<Communicator> pair =
        group().split(is_first || is_second ? std::optional<Index>(0) : std::nullopt, is_first ? 0 : 1);
    if (is_first) with_next = std::move(pair);
    if (is_second) with_previous = std::move(pair);
  }
  with_next->barrier();
  with_previous->barrier();
}

// ---- The cases: name, numbers of devices, exit code, what the error line says, what the devices do -----------

const std::vector<Case> everybody_waits = {
    {"sends_to_the_right",
     {2},
     82,
     {"deadlock: device 0 waits in send (call 1) for device 1; device 1 waits in send (call 1) for device 0"},
     send_to_the_right},
    {"sends_to_the_right",
     {3},
     82,
     {"device 0 waits in send (call 1) for device 1; device 1 waits in send"},
     send_to_the_right,
     Where::cuda_too},
    {"sends_to_the_right", {5}, 82, {"device 4 waits in send (call 1) for device 0"}, send_to_the_right},
    {"receives_from_the_left",
     {3},
     82,
     {"device 0 waits in receive (call 1) for device 2; device 1 waits in receive"},
     receive_from_the_left,
     Where::cuda_too},
    {"1_ends_early",
     {3},
     82,
     {"device 0 waits in all_reduce (call 1) for device 1", "device 1 waits in the end of the program"},
     only(1, nothing, all_reduce),
     Where::cuda_too},
    {"0_ends_early",
     {2},
     82,
     {"device 0 waits in the end of the program; device 1 waits in all_reduce"},
     only(0, nothing, all_reduce)},
    {"all_but_the_last_end_early",
     {4},
     82,
     {"device 0 waits in the end of the program; device 1 waits in the end",
      "device 3 waits in receive (call 1) for device 0"},
     only(
         last, [] { group().receive(0); }, nothing)},
    {"1_ends_while_others_poll",
     {3},
     82,
     {"device 0 waits in all_reduce (call 1)", "the end of the program"},
     only(1, nothing, poll_all_reduce)},
    {"1_sends_in_an_all_reduce",
     {2},
     82,
     {"device 0 waits in all_reduce", "device 1 waits in send"},
     only(
         1, [] { group().send(0, Tensor({3})); }, all_reduce),
     Where::cuda_too},
    {"0_receives_in_a_barrier",
     {3},
     82,
     {"device 0 waits in receive", "device 2 waits in barrier"},
     only(
         0, [] { group().receive(1); }, [] { group().barrier(); })},
    {"groups_in_a_circle",
     {3},
     82,
     {"device 0 waits in barrier in group {0, 1} (call 1) for device 1; device 1 waits in barrier in group "
      "{1, 2} "
      "(call 1) for device 2; device 2 waits in barrier in group {2, 0} (call 1) for device 0"},
     meet_in_groups_of_two,
     Where::cuda_too},
    {"1_leaves_out_an_exchange",
     {3},
     82,
     {"device 0 waits in a number", "device 1 waits in the end of the program"},
     only(
         1, [] { group().synchronize(); }, exchange_a_number)},
    {"all_wait_for_posts",
     {3},
     82,
     {"deadlock: device 0 waits in post_receive (call 1) for device 1; device 1 waits"},
     [] { group().post_receive(right(), {2}).get(); },
     Where::cuda_too},
    {"0_drops_a_message_that_nobody_receives",
     {2},
     82,
     {"device 0 waits in post_send (call 1) for device 1; device 1 waits in the end of the program"},
     only(
         0, [] { group().post_send(1, Tensor({100'000})); }, nothing),
     Where::cuda_too},
    {"0_drops_a_receive_of_what_nobody_sends",
     {3},
     82,
     {"device 0 waits in post_receive (call 1) for device 1"},
     only(
         0, [] { group().post_receive(1, {3}); }, nothing)},
};

const std::vector<Case> somebody_throws = {
    {"1_throws", {2, 8}, 65, {"error: device 1: no such file"}, only(1, throw_file_error, all_reduce)},
    {"1_throws",
     {3},
     65,
     {"error: device 1: no such file"},
     only(1, throw_file_error, all_reduce),
     Where::cuda_too},
    {"0_throws", {3}, 65, {"error: device 0: no such file"}, only(0, throw_file_error, all_reduce)},
    {"last_throws_before_a_message",
     {3},
     65,
     {"error: device 2: no such file"},
     only(last, throw_file_error, [] { group().receive(devices() - 1); })},
    {"1_throws_before_an_exchange",
     {3},
     65,
     {"error: device 1: no such file"},
     only(1, throw_file_error, exchange_a_number)},
    {"1_throws_before_the_end",
     {2},
     65,
     {"error: device 1: no such file"},
     only(1, throw_file_error, nothing)},
    {"all_throw", {1}, 65, {"error: device 0: no such file"}, throw_file_error},
    {"all_throw", {8}, 65, {": no such file"}, throw_file_error},
    {"1_throws_another_exception",
     {3},
     70,
     {"error: device 1: a standard exception"},
     only(
         1, [] { throw std::runtime_error("a standard exception"); }, all_reduce)},
    {"1_throws_no_exception",
     {3},
     70,
     {"error: device 1: an exception of an unknown type"},
     only(
         1, [] { throw 42; }, all_reduce)},
    {"1_runs_out_of_memory",
     {3},
     70,
     {"error: device 1: out of memory"},
     only(
         1, [] { Tensor::uninitialized({Index{1} << 55}); }, all_reduce)},
    {"1_throws_while_0_computes",
     {3},
     65,
     {"error: device 1: no such file"},
     only(1, throw_file_error, [] { std::this_thread::sleep_for(1s), all_reduce(); })},
    {"1_throws_while_0_never_calls",
     {2},
     65,
     {"error: device 1: no such file"},
     only(1, throw_file_error, [] { std::this_thread::sleep_for(60s); })},
    {"1_throws_while_others_poll",
     {3},
     65,
     {"error: device 1: no such file"},
     only(1, throw_file_error, poll_all_reduce),
     Where::cuda_too},
    {"1_is_killed",
     {3},
     83,
     {"a device was lost"},
     only(
         1, [] { std::raise(SIGKILL); }, all_reduce),
     Where::cuda_too},
};

const std::vector<Case> calls_do_not_fit = {
    {"1_gives_a_bad_axis",
     {3},
     84,
     {"error: device 1: all_gather: expected an axis of (3,), given axis 1"},
     only(
         1, [] { group().all_gather_async(Tensor({3}), 1); }, all_reduce)},
    {"1_sends_too_many_axes",
     {2},
     84,
     {"error: device 1: send: expected at most 32 axes, given 33"},
     only(
         1, [] { group().send(0, Tensor(Shape(33, 1))); }, [] { group().receive(1); })},
    {"1_makes_another_call",
     {3},
     81,
     {"all_reduce(sum) of (5,)", "barrier"},
     only(
         1, [] { group().barrier(); }, all_reduce),
     Where::cuda_too},
    {"1_has_a_dst_of_another_shape",
     {3},
     81,
     {"error: device 1: send_async: expected (4,) as my dst, given (3,) from device 0"},
     send_to_a_dst_of_another_shape},
    {"1_expects_a_longer_message",
     {3},
     81,
     {"error: device 1: post_receive: expected (40,), given (3,) from device 0"},
     [] { expect_another_length(3, 40); },
     Where::cuda_too},
    {"1_expects_a_shorter_message",
     {2},
     81,
     {"error: device 1: post_receive: expected (3,), given (4000,) from device 0"},
     [] { expect_another_length(4000, 3); }},
};

const std::vector<Case> nobody_is_wrong = {
    {"1_returns_86", {3}, 86, {}, [] { return me() == 1 ? 86 : 0; }},
    {"returns_80_plus_id", {3}, 82, {}, [] { return 80 + me(); }},
    {"1_is_slow", {3}, 0, {}, only(1, all_reduce_late, all_reduce), Where::cuda_too},
    {"0_is_slow", {3}, 0, {}, only(0, all_reduce_late, all_reduce)},
    {"0_waits_for_a_slow_game", {3}, 0, {}, play_slowly_without_0},
    {"0_polls_while_1_is_slow", {3}, 0, {}, only(1, all_reduce_late, poll_all_reduce), Where::cuda_too},
    {"1_prints_while_0_waits", {2}, 0, {}, print_while_0_waits},
    {"0_drops_a_future_and_ends", {3}, 0, {}, drop_a_future_on_0},
    {"0_drops_messages_and_ends", {3}, 0, {}, drop_messages_on_0, Where::cuda_too},
    {"0_prints_before_its_messages_are_met", {3}, 0, {}, print_before_messages_are_met, Where::cuda_too},
};

}  // namespace

int main(int argc, char** argv) {
  return testing::run_cases(argc, argv,
                            {everybody_waits, somebody_throws, calls_do_not_fit, nobody_is_wrong});
}
