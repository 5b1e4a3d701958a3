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

// ---- What devices do --------------------------------------------------------------------------------------

void be_killed() {
  let_others_wait();
  std::raise(SIGKILL);
}
void be_told_to_end() {
  std::raise(SIGTERM);
}
void exit_on_1() {
  all_reduce();
  if (me() == 1) {
    let_others_wait();
    _exit(3);
  }
  group().barrier();
}

bool crashes_in_finalize = false;
void crash_in_finalize() {
  crashes_in_finalize = true;
}
void crash_after_the_end() {
  std::atexit([] { std::raise(SIGSEGV); });
}

void begin_a_job() {
  int argc = 0;
  char** argv = nullptr;
  run_on_devices(argc, argv, [](Communicator&) { return 0; });
}

void meet() {
  group().barrier();
}
void make_a_group() {
  group().split(0, 0);
}
/// Everybody posts three elements to the right; device 1 expects more from the left.
void expect_longer_on_1() {
  Future<> on_its_way = group().post_send(right(), Tensor({3}));
  group().post_receive(left(), {me() == 1 ? 40 : 3}).get();
  on_its_way.wait();
}

void reduce_for_ever() {
  for (;;) all_reduce();
}
/// A second thread makes a call, while the first one makes calls, too, or waits for the second one.
void call_from_two_threads() {
  std::thread second(all_reduce);
  reduce_for_ever();
}
void call_from_a_thread() {
  std::thread(all_reduce).join();
}

int make_a_tensor_of_no_elements() {
  return Tensor({Index{1} << 31, Index{1} << 31, Index{1} << 31, 0}).size() == 0 ? 0 : 1;
}

// ---- The cases: name, numbers of devices, exit code, what the error line says, what the devices do -----------

const std::vector<Case> somebody_throws = {
    of_1(65, "throws", {": no such file"}, throw_file_error, Where::everywhere),
    ends_in(65, "1_throws_before_the_end", 2, {"error: device 1: no such file"},
            only(1, throw_file_error, nothing)),
    ends_in(65, "all_throw", 1, {"error: device 0: no such file"}, throw_file_error),
    of_1(70, "throws_another_exception", {": a standard exception"},
         [] { throw std::runtime_error("a standard exception"); }),
    of_1(70, "throws_no_exception", {": an exception of an unknown type"}, [] { throw 42; }),
    of_1(69, "runs_out_of_memory", {": out of memory"}, [] { Tensor::uninitialized({Index{1} << 55}); }),
    ends_in(65, "1_throws_while_0_never_calls", 2, {"error: device 1: no such file"},
            only(1, throw_file_error, [] { std::this_thread::sleep_for(60s); }), Where::emulator),
    ends_in(65, "1_throws_while_others_poll", 3, {"error: device 1: no such file"},
            only(1, throw_file_error, poll_all_reduce), Where::everywhere),
    ends_in(84, "1_returns_a_number_that_is_no_exit_code", 3,
            {"error: device 1: the program: expected to return 0 to 125, given -1"},
            [] { return me() == 1 ? -1 : 0; }),
    ends_in(84, "1_returns_the_code_of_a_shell", 2,
            {"error: device 1: the program: expected to return 0 to 125, given 126"},
            [] { return me() == 1 ? 126 : 0; }),
    of_1(84, "begins_a_job_within_the_job",
         {": run_on_devices: expected one call in a program, given another one"}, begin_a_job),
};

const std::vector<Case> somebody_is_lost = {
    of_1(83, "is_killed",
         {" was lost: it was killed by SIGKILL after no call\n",
          "  devices 0, 2 were in call 1 (all_reduce) at tests/failures/misbehave.hpp:"},
         be_killed, Where::cuda_too),
    ends_in(0, "1_crashes_in_MPI_Finalize", 2, {}, only(1, crash_in_finalize, nothing), Where::emulator),
    ends_in(83, "1_crashes_after_the_end", 2,
            {"error: device 1 was lost: it was killed by SIGSEGV after no call"},
            only(1, crash_after_the_end, nothing), Where::emulator),
    ends_in(
        83, "1_exits_at_once", 3,
        {"error: device 1 was lost: it left the program with exit code 3 after call 1 (all_reduce) at tests/",
         "  devices 0, 2 were in call 2 (barrier) at tests/failures/misbehave.cpp:"},
        exit_on_1, Where::emulator),
    of_1(83, "is_told_to_end", {" was lost: it was killed by SIGTERM after no call\n"}, be_told_to_end,
         Where::emulator),
};

const std::string second_thread =
    ": a call to the device, or an operation on tensors: expected from the thread that runs the program, "
    "given from a second";
const std::vector<Case> what_does_not_fit = {
    ends_in(81, "1_makes_another_call", 3,
            {"error: the devices do not make the same call\n",
             fmt::format("\n  devices 0, 2 call all_reduce(sum) of (5,) ({})\n",
                         call_1_at("misbehave.hpp", line_of_all_reduce)),
             "\n  device 1 calls barrier (call 1 at tests/failures/misbehave.cpp:",
             "\n  look at what device 1 alone does"},
            only(1, meet, all_reduce), Where::everywhere),
    ends_in(81, "1_makes_a_group", 3,
            {"error: the devices do not make the same call\n", "\n  device 1 calls split (",
             "\n  look at what device 1 alone does"},
            only(1, make_a_group, all_reduce), Where::everywhere),
    ends_in(81, "1_expects_a_longer_message", 3,
            {"error: device 1: post_receive: expected (40,), given (3,) from device 0"}, expect_longer_on_1,
            Where::everywhere),
    ends_in(84, "1_calls_from_two_threads", 3, {"error: device 1" + second_thread},
            only(1, call_from_two_threads, reduce_for_ever), Where::emulator),
    of_1(84, "calls_from_a_thread", {second_thread}, call_from_a_thread, Where::emulator),
    ends_in(0, "no_elements_have_any_extent", 1, {}, make_a_tensor_of_no_elements),
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
                            {everybody_waits, some_wait_for_ever, somebody_throws, somebody_is_lost,
                             what_does_not_fit, nobody_is_wrong});
}
