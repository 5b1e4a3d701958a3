/// The main function of all test programs: every device runs the same test cases in step.
///
/// Device 0 prints. The other devices print only their failures, at once and with their number. The devices
/// synchronise after each test case, which finds a device that has left its test early, or runs another one.
/// Options: see TestOptions. `--devices` with any number also runs tests of files that do not name it.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <vector>

#include "engine/device/device.hpp"
#include "engine/device/runtime/job.hpp"
#include "tests/harness/main.hpp"

namespace shard::testing {
namespace {

/// The state of the test run on all devices, up to the last test case that all have ended.
struct Progress {
  bool has_begun = false;  // false if tests are only listed
  Index test_cases = 0;
  std::vector<Index> failed;  // number of failed assertions, by device
};
Progress progress;

/// Thrown on all devices at the same time, to run no more test cases.
struct EndOfTests {};

class DeviceListener : public FailureListener {
 public:
  using FailureListener::FailureListener;
  static std::string getDescription() {
    return "names the device whose assertion failed, keeps devices in step";
  }

  void testRunStarting(const Catch::TestRunInfo&) override { progress.has_begun = true; }
  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    FailureListener::testCaseStarting(info);
    ++progress.test_cases;
  }

  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    if (is_dying_) return;  // after a signal: the handler cannot communicate
    failed_here_ += static_cast<Index>(stats.totals.assertions.failed);
    try {
      meet();
    } catch (const Error& error) {
      runtime::Job::fail(error.code(), "after test case \"" + path_[0] + "\": " + error.what());
    }
    if (test_options().brief && std::ranges::any_of(progress.failed, [](Index n) { return n > 0; }))
      throw EndOfTests();
  }

 private:
  /// Checks that all devices have ended the same test case, and exchanges their failures.
  void meet() {
    const Index mine = progress.test_cases;
    const std::vector<Index> ended = group().exchange("the end of a test case", mine);
    for (std::size_t d = 0; d < ended.size(); ++d)
      if (ended[d] != mine)
        refuse(Code::mismatch, "the end of a test case", fmt::format("test case {} on every device", mine),
               fmt::format("test case {} on device {}", ended[d], d));
    progress.failed = group().exchange("failed assertions", failed_here_);
  }

  Index failed_here_ = 0;
};

CATCH_REGISTER_LISTENER(DeviceListener)

/// Device 0's summary would count only its own assertions, so this line counts those of all devices.
void print_summary() {
  std::string text;
  for (std::size_t d = 0; d < progress.failed.size(); ++d)
    if (progress.failed[d] > 0)
      text += fmt::format("{}{} on device {}", text.empty() ? "" : ", ", progress.failed[d], d);
  std::cout << fmt::format("{} test cases on {} devices; failed assertions: {}", progress.test_cases,
                           group().num_devices(), text.empty() ? "none" : text)
            << std::endl;
}

int run_tests(int argc, char** argv) {
  const bool is_speaker = group().device_id() == 0;
  int failed = 1;
  try {
    failed = run_session(argc, argv, [is_speaker](Catch::ConfigData& config) {
      restrain(config, is_speaker);
      if (!is_speaker && std::freopen("/dev/null", "w", stdout) == nullptr)
        refuse(Code::internal, "/dev/null", "a file to write to", "none");
      // All devices use device 0's seed, so a random order is the same on all.
      config.rngSeed = static_cast<unsigned>(group().exchange("seed", static_cast<Index>(config.rngSeed))[0]);
    });
  } catch (const EndOfTests&) {  // after a failure
  }
  if (!progress.has_begun) return failed;
  print_summary();
  return failed == 0 && progress.test_cases > 0 ? 0 : 1;
}

}  // namespace

bool on_processes() {
  return true;
}

void on_each_device(const char* file, void (*body)()) {
  const RunsOn numbers = numbers_of(file);
  const std::vector<int>& here = traffic_is_booked() ? numbers.on_cuda : numbers.processes;
  if (test_options().devices || std::ranges::find(here, group().num_devices()) != here.end()) body();
}

}  // namespace shard::testing

int main(int argc, char** argv) {
  return shard::run_on_devices(argc, argv, [&](shard::Communicator& world) {
    shard::testing::take_options(argc, argv);
    shard::testing::group().set_inner(world);
    return shard::testing::run_tests(argc, argv);
  });
}
