/// The main of all test programs: every device runs the same test cases in step.
///
/// Device 0 speaks; of the others only what failed is heard, at once and with their number. After each test
/// case the devices meet, so that one which has left its test early, or is in another one, is found out.
/// `--groups 4,1,3/0,2` as the first arguments: devices 4, 1 and 3, in that order, run the tests as a group
/// of three, and so do 0 and 2 as a group of two, at the same time; others just wait for the end. (Started
/// with several programs, mpirun -n 1 A : -n 2 B, each group can run tests of its own.)
/// `--verbose`: see EndsAtFirstFailure.
/// `--list` says on how many devices the tests are to run, in one process and without MPI.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <optional>
#include <sstream>
#include <vector>

#include "engine/device/device.hpp"
#include "engine/device/runtime/control_plane.hpp"
#include "tests/harness/devices.hpp"
#include "tests/harness/main.hpp"

namespace shard::testing {
namespace {

/// How the test run went, on all devices, as of the last test case that all have ended.
struct Progress {
  bool has_begun = false;  // not so where tests are just listed
  Index test_cases = 0;
  std::vector<Index> failed;  // assertions, on each device
};
Progress progress;

/// Thrown on all devices at once: no more test cases.
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
    if (is_dying_) return;  // of a signal, and its handler cannot communicate
    failed_here_ += static_cast<Index>(stats.totals.assertions.failed);
    try {
      meet();
    } catch (const Error& error) {
      runtime::ControlPlane::instance().fail(error.code(),
                                             "after test case \"" + path_[0] + "\": " + error.what());
    }
    if (brevity().is_on && std::ranges::any_of(progress.failed, [](Index n) { return n > 0; }))
      throw EndOfTests();
  }

 private:
  /// Everybody has ended the same test case; everybody's failures so far become known.
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

/// The last line of device 0, which else would speak of its own assertions only.
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
  Catch::Session session;
  if (int refused = session.applyCommandLine(argc, argv); refused != 0) return refused;
  const bool is_speaker = group().device_id() == 0;
  restrain(session.configData(), is_speaker);
  if (!is_speaker && std::freopen("/dev/null", "w", stdout) == nullptr) return 1;
  // A random order, where one is asked for, is everybody's order.
  session.configData().rngSeed =
      static_cast<unsigned>(group().exchange("seed", static_cast<Index>(session.configData().rngSeed))[0]);
  int failed = 1;
  try {
    failed = session.run();
  } catch (const EndOfTests&) {  // after a failure
  }
  if (!progress.has_begun) return failed;
  print_summary();
  return failed == 0 && progress.test_cases > 0 ? 0 : 1;
}

/// The groups that `--groups` names, each a list of devices; taken off the command line. Else all devices.
std::vector<std::vector<int>> take_groups(int& argc, char** argv, int devices) {
  std::vector<std::vector<int>> groups(1);
  if (argc < 3 || std::string_view(argv[1]) != "--groups") {
    for (int d = 0; d < devices; ++d) groups[0].push_back(d);
    return groups;
  }
  std::istringstream text(argv[2]);
  for (int device = 0; text >> device;) {
    if (device < 0 || device >= devices)
      throw Error(Code::usage,
                  fmt::format("--groups: expected devices of 0 to {}, given {}", devices - 1, argv[2]));
    groups.back().push_back(device);
    if (text.get() == '/') groups.emplace_back();
  }
  std::rotate(argv + 1, argv + 3, argv + argc);
  argc -= 2;
  return groups;
}

/// Runs the tests in the group that this device belongs to.
int run_in_groups(Communicator& world, int argc, char** argv) {
  if (take_verbose(argc, argv)) brevity().is_on = false;
  const std::vector<std::vector<int>> groups = take_groups(argc, argv, world.num_devices());
  std::optional<Index> color;
  Index key = 0;
  for (std::size_t g = 0; g < groups.size(); ++g)
    if (const auto at = std::ranges::find(groups[g], this_device()); at != groups[g].end()) {
      color = static_cast<Index>(g);
      key = at - groups[g].begin();
    }
  const bool is_everybody = groups.size() == 1 && std::ranges::is_sorted(groups[0]) &&
                            static_cast<int>(groups[0].size()) == world.num_devices();
  const std::unique_ptr<Communicator> part = is_everybody ? nullptr : world.split(color, key);
  if (!is_everybody && part == nullptr) return 0;
  group().set_inner(is_everybody ? world : *part);
  const int code = run_tests(argc, argv);
  group().synchronize();
  return code;
}

}  // namespace

void on_each_device(void (*body)()) {
  body();
}

bool is_to_end() {
  if (!brevity().is_on) return false;
  return std::ranges::max(group().exchange("failures", brevity().failures_here)) > 0;
}

}  // namespace shard::testing

int main(int argc, char** argv) {
  using shard::testing::print_numbers_of_devices;
  if (argc == 2 && argv[1] == std::string("--list")) return print_numbers_of_devices();
  return shard::run_on_devices(argc, argv, [&](shard::Communicator& world) {
    return shard::testing::run_in_groups(world, argc, argv);
  });
}
