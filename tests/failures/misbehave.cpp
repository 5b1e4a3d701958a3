// misbehave CASE: runs a program with a mistake. The tables say how its job must end. Some cases have no mistake,
// and are only slow: they must end without an error.

#include "tests/failures/misbehave.hpp"

#include <mpi.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <stdexcept>

namespace {

void throw_file_error() {
  throw Error(Code::file, fmt::format("device {}: no such file", me()));
}

/// Gives the others time to begin their wait. When a device is lost, they are ended at once.
void let_others_wait() {
  std::this_thread::sleep_for(std::chrono::seconds(1));  // enough on a busy machine, too
}

// ---- Bodies of more than a line ---------------------------------------------------------------------------

bool crashes_in_finalize = false;

void begin_a_job() {
  int argc = 0;
  char** argv = nullptr;
  run_on_devices(argc, argv, [](Communicator&) { return 0; });
}

/// Device 1 passes far more than the others have room for.
void reduce_more_on_1() {
  group().all_reduce_async(Tensor({me() == 1 ? 60'000 : 30}), ReduceOp::sum).get();
}
/// Each device posts `sent` elements to the right. Device 1 expects another number from the left.
void expect_another_length(Index sent, Index expected_on_1) {
  Future<> on_its_way = group().post_send(right(), Tensor({sent}));
  group().post_receive(left(), {me() == 1 ? expected_on_1 : sent}).get();
  on_its_way.wait();
}

/// A second thread makes a call, while the first one makes calls, too, or waits for the second one.
void call_from_two_threads() {
  std::thread second(all_reduce);
  for (;;) all_reduce();
}
void call_from_a_thread() {
  std::thread(all_reduce).join();
}

// ---- The cases: name, numbers of devices, exit code, what the error line says, what the devices do -----------

const std::vector<Case> somebody_throws = {
    {"1_throws",
     {3},
     65,
     {"error: device 1: no such file"},
     only(1, throw_file_error, all_reduce),
     Where::everywhere},
    {"1_throws_before_the_end",
     {2},
     65,
     {"error: device 1: no such file"},
     only(1, throw_file_error, nothing)},
    {"all_throw", {1}, 65, {"error: device 0: no such file"}, throw_file_error},
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
     69,
     {"error: device 1: out of memory"},
     only(
         1, [] { Tensor::uninitialized({Index{1} << 55}); }, all_reduce)},
    {"1_throws_while_0_never_calls",
     {2},
     65,
     {"error: device 1: no such file"},
     only(1, throw_file_error, [] { std::this_thread::sleep_for(60s); }),
     Where::emulator},
    {"1_throws_while_others_poll",
     {3},
     65,
     {"error: device 1: no such file"},
     only(1, throw_file_error, poll_all_reduce),
     Where::everywhere},
    {"1_is_killed",
     {3},
     83,
     {"error: device 1 was lost: it was killed by SIGKILL after no call\n",
      "  devices 0, 2 were in call 1 (all_reduce) at tests/failures/misbehave.hpp:"},
     only(
         1,
         [] {
           let_others_wait();
           std::raise(SIGKILL);
         },
         all_reduce),
     Where::cuda_too},
    {"1_crashes_in_MPI_Finalize",
     {2},
     0,
     {},
     only(
         1, [] { crashes_in_finalize = true; }, nothing),
     Where::emulator},
    {"1_crashes_after_the_end",
     {2},
     83,
     {"error: device 1 was lost: it was killed by SIGSEGV after no call"},
     only(
         1, [] { std::atexit([] { std::raise(SIGSEGV); }); }, nothing),
     Where::emulator},
    {"1_exits_at_once",
     {3},
     83,
     {"error: device 1 was lost: it left the program with exit code 3 after call 1 (all_reduce) at tests/",
      "  devices 0, 2 were in call 2 (barrier) at tests/failures/misbehave.cpp:"},
     [] {
       all_reduce();
       if (me() == 1) {
         let_others_wait();
         _exit(3);
       }
       group().barrier();
     },
     Where::emulator},
    {"1_is_told_to_end",
     {3},
     83,
     {"error: device 1 was lost: it was killed by SIGTERM after no call\n"},
     only(
         1, [] { std::raise(SIGTERM); }, all_reduce),
     Where::emulator},
    {"1_returns_a_number_that_is_no_exit_code",
     {3},
     84,
     {"error: device 1: the program: expected to return 0 to 125, given -1"},
     [] { return me() == 1 ? -1 : 0; }},
    {"1_begins_a_job_within_the_job",
     {3},
     84,
     {"error: device 1: run_on_devices: expected one call in a program, given another one"},
     only(1, begin_a_job, all_reduce)},
};

const std::vector<Case> calls_do_not_fit = {
    {"1_makes_another_call",
     {3},
     81,
     {"error: the devices do not make the same call\n",
      fmt::format("\n  devices 0, 2 call all_reduce(sum) of (5,) ({})\n",
                  call_1_at("misbehave.hpp", line_of_all_reduce)),
      "\n  device 1 calls barrier (call 1 at tests/failures/misbehave.cpp:",
      "\n  look at what device 1 alone does"},
     only(
         1, [] { group().barrier(); }, all_reduce),
     Where::everywhere},
    {"1_reduces_more", {3}, 81, {"device 1 calls all_reduce(sum) of (60000,)"}, reduce_more_on_1},
    {"1_expects_a_longer_message",
     {3},
     81,
     {"error: device 1: post_receive: expected (40,), given (3,) from device 0"},
     [] { expect_another_length(3, 40); },
     Where::everywhere},
};

const std::string second_thread =
    "error: device 1: a call to the device, or an operation on tensors: expected from the thread that runs "
    "the program, given from a second";
const std::vector<Case> threads_and_sizes = {
    {"1_calls_from_two_threads",
     {3},
     84,
     {second_thread},
     only(1, call_from_two_threads,
          [] {
            for (;;) all_reduce();
          }),
     Where::emulator},
    {"1_calls_from_a_thread",
     {3},
     84,
     {second_thread},
     only(1, call_from_a_thread, all_reduce),
     Where::emulator},
    {"no_elements_have_any_extent",
     {1},
     0,
     {},
     [] {
       return Tensor({Index{1} << 31, Index{1} << 31, Index{1} << 31, 0}).size() == 0 ? 0 : 1;
     }},
};

}  // namespace

/// Replaces Open MPI's function, and calls it.
extern "C" int MPI_Finalize() {
  const int code = PMPI_Finalize();
  if (crashes_in_finalize) std::raise(SIGSEGV);
  return code;
}

int main(int argc, char** argv) {
  return testing::run_cases(argc, argv,
                            {everybody_waits, some_wait_for_ever, somebody_throws, calls_do_not_fit,
                             threads_and_sizes, nobody_is_wrong});
}
