// Hidden test cases that fail, run by check: a program with --brief ends at its first failure.

#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"

using shard::testing::group;

RUNS_ON(.in_one_process = {}, .processes = {3});

TEST_CASE("a check fails on devices 1 and 2, and again", "[.][first]") {
  for (int i = 0; i < 4; ++i) {
    CAPTURE(i);
    if (group().device_id() > 0 && i > 0) FAIL_CHECK("wrong");
    if (shard::testing::is_to_end()) return;
  }
}

TEST_CASE("another one fails", "[.][first]") {
  CHECK(group().device_id() > 100);
}

TEST_CASE("nothing fails") {
  CHECK_FALSE(shard::testing::is_to_end());
}
