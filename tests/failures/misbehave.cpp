// misbehave CASE: a program whose devices go wrong in the way of that name, so that check_misbehave can see
// how the job ends. Cases that are no mistake, only slow, are among them: they must end well.

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "engine/device/device.hpp"
#include "engine/device/runtime/control_plane.hpp"

using namespace shard;
using namespace std::chrono_literals;

namespace {

Communicator* everybody = nullptr;

Communicator& group() {
  return *everybody;
}
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

/// Device `culprit` does the first thing, the others the second.
template <class Wrong, class Meanwhile>
int only(int culprit, const Wrong& wrong, const Meanwhile& meanwhile) {
  if (me() == culprit)
    wrong();
  else
    meanwhile();
  return 0;
}
void throw_file_error() {
  throw Error(Code::file, fmt::format("device {}: no such file", me()));
}

void poll_all_reduce() {
  Future<Tensor> future = group().all_reduce_async(Tensor({5}), ReduceOp::sum);
  while (!future.ready()) continue;
  future.get();
}

using Case = int (*)();
const std::map<std::string, Case> everybody_waits = {
    {"sends_to_the_right",
     [] {
       group().send(right(), Tensor({3}));
       group().receive(left());
       return 0;
     }},
    {"receives_from_the_left",
     [] {
       group().receive(left());
       group().send(right(), Tensor({3}));
       return 0;
     }},
    {"1_ends_early",
     [] {
       return only(
           1, [] {}, all_reduce);
     }},
    {"0_ends_early",
     [] {
       return only(
           0, [] {}, all_reduce);
     }},
    {"all_but_the_last_end_early",
     [] {
       return only(
           devices() - 1, [] { group().receive(0); }, [] {});
     }},
    {"1_sends_in_an_all_reduce",
     [] {
       return only(
           1, [] { group().send(0, Tensor({3})); }, all_reduce);
     }},
    {"0_receives_in_a_barrier",
     [] {
       return only(
           0, [] { group().receive(1); }, [] { group().barrier(); });
     }},
    {"1_ends_while_others_poll",
     [] {
       return only(
           1, [] {}, poll_all_reduce);
     }},
    {"1_leaves_out_an_exchange",
     [] {
       return only(
           1, [] { group().synchronize(); }, [] { group().exchange("a number", 1); });
     }},
};

const std::map<std::string, Case> somebody_throws = {
    {"1_throws", [] { return only(1, throw_file_error, all_reduce); }},
    {"0_throws", [] { return only(0, throw_file_error, all_reduce); }},
    {"last_throws_before_a_letter",
     [] { return only(devices() - 1, throw_file_error, [] { group().receive(devices() - 1); }); }},
    {"1_throws_before_an_exchange",
     [] { return only(1, throw_file_error, [] { group().exchange("a number", 1); }); }},
    {"1_throws_before_the_end", [] { return only(1, throw_file_error, [] {}); }},
    {"all_throw", [] { return throw_file_error(), 0; }},
    {"1_throws_another_exception",
     [] {
       return only(
           1, [] { throw std::runtime_error("a standard exception"); }, all_reduce);
     }},
    {"1_throws_no_exception",
     [] {
       return only(
           1, [] { throw 42; }, all_reduce);
     }},
    {"1_runs_out_of_memory",
     [] {
       return only(
           1, [] { Tensor::uninitialized({Index{1} << 55}); }, all_reduce);
     }},
    {"1_sends_too_many_axes",
     [] {
       return only(
           1, [] { group().send(0, Tensor(Shape(33, 1))); }, [] { group().receive(1); });
     }},
    {"1_gives_a_bad_axis",
     [] {
       return only(
           1, [] { group().all_gather_async(Tensor({3}), 1); }, all_reduce);
     }},
    {"1_makes_another_call",
     [] {
       return only(
           1, [] { group().barrier(); }, all_reduce);
     }},
    {"1_has_a_dst_of_another_shape",
     [] {
       const Tensor src({3});
       Tensor dst({me() == 1 ? 4 : 3});
       group().send_async(src, dst, right()).wait();
       return 0;
     }},
    {"1_expects_a_longer_message",
     [] {
       Future<> sent = group().post_send(right(), Tensor({3}));
       group().post_receive(left(), {me() == 1 ? 40 : 3}).get();
       sent.wait();
       return 0;
     }},
    {"1_expects_a_shorter_message",
     [] {
       Future<> sent = group().post_send(right(), Tensor({4000}));
       group().post_receive(left(), {me() == 1 ? 3 : 4000}).get();
       sent.wait();
       return 0;
     }},
    {"all_wait_for_posts",
     [] {
       group().post_receive(right(), {2}).get();
       return 0;
     }},
    {"0_drops_a_message_that_nobody_receives",
     [] {
       return only(
           0, [] { group().post_send(1, Tensor({100'000})); }, [] {});
     }},
    {"0_drops_a_receive_of_what_nobody_sends",
     [] {
       return only(
           0, [] { group().post_receive(1, {3}); }, [] {});
     }},
    {"1_throws_while_0_computes",
     [] { return only(1, throw_file_error, [] { std::this_thread::sleep_for(1s), all_reduce(); }); }},
    {"1_throws_while_0_never_calls",
     [] { return only(1, throw_file_error, [] { std::this_thread::sleep_for(60s); }); }},
    {"1_throws_while_others_poll", [] { return only(1, throw_file_error, poll_all_reduce); }},
    {"1_is_killed",
     [] {
       return only(
           1, [] { std::raise(SIGKILL); }, all_reduce);
     }},
};

/// A letter back and forth between devices 1 and 2, with pauses, for longer than anybody's patience.
void play_slowly() {
  for (int turn = 0; turn < 8; ++turn) {
    std::this_thread::sleep_for(300ms);
    if ((turn + me()) % 2 == 0)
      group().send(3 - me(), Tensor({2}));
    else
      group().receive(3 - me());
  }
}

const std::map<std::string, Case> nobody_is_wrong = {
    {"1_returns_86", [] { return me() == 1 ? 86 : 0; }},
    {"returns_80_plus_id", [] { return 80 + me(); }},
    {"1_is_slow",
     [] {
       return only(
           1, [] { std::this_thread::sleep_for(3s), all_reduce(); }, all_reduce);
     }},
    {"0_is_slow",
     [] {
       return only(
           0, [] { std::this_thread::sleep_for(3s), all_reduce(); }, all_reduce);
     }},
    {"0_waits_for_a_slow_game",
     [] {
       if (me() != 0) play_slowly();
       all_reduce();
       return 0;
     }},
    {"0_polls_while_1_is_slow",
     [] {
       return only(
           1, [] { std::this_thread::sleep_for(3s), all_reduce(); }, poll_all_reduce);
     }},
    {"1_prints_while_0_waits",
     [] {
       Future<Tensor> future = group().all_gather_async(Tensor({3}), 0);
       std::ostringstream out;
       if (me() == 0) future.get();
       print_in_device_order(group(), out, "mine:", Tensor({2}));
       if (me() != 0) future.get();
       return 0;
     }},
    {"0_drops_a_future_and_ends",
     [] {
       Future<Tensor> future = group().all_gather_async(Tensor({3}), 0);
       if (me() != 0) return future.get().size() == 3 * devices() ? 0 : 1;
       return 0;
     }},
    {"0_drops_messages_and_ends",
     [] {
       if (me() == 0) {
         group().post_receive(devices() - 1, {100'000});
         group().post_send(1, Tensor({100'000}));
         return 0;
       }
       std::this_thread::sleep_for(300ms);
       group().send((me() + 1) % devices(), group().receive(me() - 1));
       return 0;
     }},
    {"0_prints_before_its_messages_are_met",
     [] {
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
       return 0;
     }},
};

}  // namespace

int main(int argc, char** argv) {
  return run_on_devices(argc, argv, [&](Communicator& world) {
    everybody = &world;
    for (const auto* cases : {&everybody_waits, &somebody_throws, &nobody_is_wrong})
      if (auto found = cases->find(argc > 1 ? argv[1] : ""); found != cases->end()) return found->second();
    throw Error(Code::usage, "misbehave: no such case");
  });
}
