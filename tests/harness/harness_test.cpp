// Tests of the harness: hidden test cases that fail, run by harness/check, and one that passes.

#include <csignal>
#include <stdexcept>
#include <string>

#include "engine/device/device.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"

using namespace shard;
using shard::testing::group;

RUNS_ON(.in_one_process = {}, .processes = {1, 3});

namespace {

Tensor sum_over_devices() {
  return group().all_reduce_async(Tensor({3}), ReduceOp::sum).get();
}

}  // namespace

TEST_CASE("every device runs the tests") {
  CHECK(group().device_id() >= 0);
  CHECK(group().device_id() < group().num_devices());
  INTERNAL_CATCH_SECTION("and their sections, in step") {
    CHECK(sum_over_devices().shape() == Shape{3});
  }
  INTERNAL_CATCH_SECTION("however many assertions each makes") {
    for (int i = 0; i < group().device_id(); ++i) CHECK(i < group().num_devices());
  }
}

// All devices continue, and the failure of one is printed in full.
TEST_CASE("a check fails on device 1", "[.]") {
  INTERNAL_CATCH_SECTION("in a section") {
    const int captured = 40 + group().device_id();
    CAPTURE(captured);
    INFO("a note of device " << group().device_id());
    CHECK(captured != 41);
  }
  sum_over_devices();
  if (group().device_id() == 1) FAIL_CHECK("a message");
}

TEST_CASE("a check fails on every device", "[.]") {
  CHECK(group().device_id() > 100);
}

// The other devices wait for one that has left the test case.
TEST_CASE("a requirement fails on device 1 before a collective", "[.]") {
  REQUIRE(group().device_id() != 1);
  sum_over_devices();
}
TEST_CASE("device 1 throws before a collective", "[.]") {
  if (group().device_id() == 1) throw std::runtime_error("thrown on purpose");
  sum_over_devices();
}
TEST_CASE("device 1 throws while others receive from it", "[.]") {
  if (group().device_id() == 1) throw std::runtime_error("thrown on purpose");
  group().receive(1);
}
TEST_CASE("device 1 throws an Error in its first section", "[.]") {
  INTERNAL_CATCH_SECTION("first") {
    if (group().device_id() == 1) throw Error(Code::file, "thrown on purpose");
    sum_over_devices();
  }
  INTERNAL_CATCH_SECTION("second") {
    sum_over_devices();
  }
}

// Devices run different test cases, and yet each of their calls matches.
TEST_CASE("device 1 meets the others once too often", "[.]") {
  if (group().device_id() == 1) group().exchange("one too many", 0);
}

TEST_CASE("device 1 dies", "[.]") {
  if (group().device_id() == 1) std::raise(SIGSEGV);
  sum_over_devices();
}
