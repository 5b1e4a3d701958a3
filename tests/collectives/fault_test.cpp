// Planned faults happen at their call, on their device, and nowhere else. (Other tests check the end of a job
// whose device is killed, leaves or stops.)

#include "engine/device/communicator/fault.hpp"

#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"

using namespace shard;
using namespace shard::testing;

RUNS_ON(.in_one_process = {1, 2, 3, 4, 5, 8}, .with_all = {6, 7}, .processes = {1, 2, 3, 4, 5, 8},
        .on_cuda = {1, 2, 3, 4});

namespace {

/// The sums of three all-reduces of ones. The second call has the fault.
std::vector<float> sums_of_three(Fault fault) {
  fault.call = 2;
  FaultyCommunicator faulty(group(), fault);
  std::vector<float> sums;
  for (int call = 0; call < 3; ++call)
    sums.push_back(faulty.all_reduce_async(Tensor::from_host({1}, std::vector<float>{1}), ReduceOp::sum)
                       .get()
                       .to_host()[0]);
  CHECK(faulty.calls() == 3);
  return sums;
}

}  // namespace

TEST_CASE("a corrupted call changes one element by one, for all") {
  const auto n = static_cast<float>(devices());
  CHECK(sums_of_three({.device = id(0), .kind = Fault::Kind::corrupt}) == std::vector<float>{n, n + 1, n});
}

TEST_CASE("a call that is left out returns its argument") {
  const auto n = static_cast<float>(devices());
  CHECK(sums_of_three({.device = this_device(), .kind = Fault::Kind::skip}) == std::vector<float>{n, 1, n});
}

TEST_CASE("a fault of a device that is not there, and a delay, change nothing") {
  const auto n = static_cast<float>(devices());
  CHECK(sums_of_three({.device = 1000, .kind = Fault::Kind::kill}) == std::vector<float>{n, n, n});
  if (devices() != 3) return;  // it takes a second
  CHECK(sums_of_three({.device = id(0), .kind = Fault::Kind::delay}) == std::vector<float>{n, n, n});
}

TEST_CASE("a fault in a part of a group counts the calls of the whole") {
  FaultyCommunicator faulty(group(), {.device = this_device(), .call = 2, .kind = Fault::Kind::skip});
  faulty.barrier();
  const std::unique_ptr<Communicator> part = faulty.split(0, 0);
  const Tensor left_out =
      part->all_reduce_async(Tensor::from_host({1}, std::vector<float>{3}), ReduceOp::sum).get();
  CHECK(left_out.to_host()[0] == 3);
  CHECK(faulty.calls() == 2);
}

TEST_CASE("a fault's text: every kind, and nothing else") {
  for (const char* kind : {"kill", "exit", "throw", "stop", "delay", "skip", "corrupt"})
    CHECK(fault_from(std::string("device=2,call=17,kind=") + kind));
  const std::optional<Fault> fault = fault_from("device=2,call=17,kind=skip");
  CHECK((fault->device == 2 && fault->call == 17 && fault->kind == Fault::Kind::skip));
  for (const char* text :
       {"", "device=2", "device=2,call=17", "device=2,call=17,kind=", "device=2,call=0,kind=skip",
        "device=-1,call=1,kind=skip", "call=1,device=2,kind=skip", "device=2,call=1x,kind=skip",
        "device=2,call=1,kind=skipped", "device=2;call=1,kind=skip", "device=99999999999,call=1,kind=skip"})
    CHECK_FALSE(fault_from(text));
}
