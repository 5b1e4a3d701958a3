/// The main of all test programs: every device runs the same test cases in step.
///
/// Device 0 speaks; of the others only what failed is heard, at once and with their number. After each test
/// case the devices meet, so that one which has left its test early, or is in another one, is found out.
/// `--groups 4,1,3/0,2` as the first arguments: devices 4, 1 and 3, in that order, run the tests as a group
/// of three, and so do 0 and 2 as a group of two, at the same time; others just wait for the end. (Started
/// with several programs, mpirun -n 1 A : -n 2 B, each group can run tests of its own.)
/// `--verbose`: see EndsAtFirstFailure.
/// `--list` says on how many devices the tests are to run, in one process and without MPI.

#define SHARDBOOK_TEST_MAIN
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "engine/device/device.hpp"
#include "engine/device/runtime/control_plane.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"

namespace shard::testing {
namespace {

/// How the test run went, on all devices, as of the last test case that all have ended.
struct Progress {
  bool has_begun = false;  // not so where tests are just listed
  Index test_cases = 0;
  std::vector<Index> failed;  // assertions, on each device
};
Progress progress;

/// Whether tests end at the first failure, and what has failed in this test case on this device.
struct Brevity {
  bool is_on = false;
  Index failures_here = 0;
};
Brevity& brevity() {
  static Brevity instance;  // here, since tests' sources write to it before main
  return instance;
}

/// Thrown on all devices at once: no more test cases.
struct EndOfTests {};

/// On how many devices this program's tests are to run.
struct NumbersOfDevices {
  std::vector<int> emulated;
  std::vector<int> on_cuda;
};
NumbersOfDevices& numbers_of_devices() {
  static NumbersOfDevices numbers;  // here, since tests' sources write to it before main
  return numbers;
}

/// As `harness/cases` reads it.
int print_numbers_of_devices() {
  const auto& [emulated, on_cuda] = numbers_of_devices();
  fmt::print("[{{\"devices\": {}, \"on_cuda\": {}}}]\n", emulated, on_cuda);
  return 0;
}

class DeviceListener : public Listener {
 public:
  using Listener::Listener;
  static std::string getDescription() {
    return "names the device whose assertion failed, keeps devices in step";
  }

  void testRunStarting(const Catch::TestRunInfo&) override { progress.has_begun = true; }
  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    path_ = {info.name};
    ++progress.test_cases;
    brevity().failures_here = 0;
  }
  void sectionStarting(const Catch::SectionInfo& info) override { path_.push_back(info.name); }
  void sectionEnded(const Catch::SectionStats&) override { path_.pop_back(); }

  void asserted(const Catch::AssertionStats& stats) override {
    if (stats.assertionResult.isOk()) return;
    if (stats.assertionResult.getResultType() == Catch::ResultWas::FatalErrorCondition) is_dying_ = true;
    if (brevity().failures_here++ > 0 && brevity().is_on) return;  // one line is enough
    std::string text = brevity().is_on ? line_of(stats) : describe(stats);
    std::fflush(stdout);
    std::fwrite(text.data(), 1, text.size(), stderr);  // in one piece: other devices write here too
    std::fflush(stderr);
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

  /// All of that in one line: "device 2: a == b; notes; test case; FILE:LINE".
  std::string line_of(const Catch::AssertionStats& stats) const {
    const Catch::AssertionResult& result = stats.assertionResult;
    std::ostringstream text;
    text << "device " << this_device() << ": ";
    if (result.hasExpandedExpression()) text << result.getExpandedExpression() << "; ";
    for (auto note = stats.infoMessages.rbegin(); note != stats.infoMessages.rend(); ++note)
      text << note->message << "; ";  // what was said last, first
    text << path_[0] << "; " << result.getSourceInfo().file << ':' << result.getSourceInfo().line;
    std::string line = text.str();
    std::ranges::replace(line, '\n', ' ');
    return line + '\n';
  }

  /// "device 2: FILE:LINE: CHECK( a == b )", and below it what a and b were, notes, and the test case.
  std::string describe(const Catch::AssertionStats& stats) const {
    const Catch::AssertionResult& result = stats.assertionResult;
    std::ostringstream text;
    text << "device " << this_device() << ": " << result.getSourceInfo().file << ':'
         << result.getSourceInfo().line << ": "
         << (result.hasExpression() ? result.getExpressionInMacro() : std::string("failure")) << '\n';
    if (result.hasExpandedExpression()) text << "    with  " << result.getExpandedExpression() << '\n';
    for (const Catch::MessageInfo& note : stats.infoMessages) text << "    note  " << note.message << '\n';
    text << "    in    ";
    for (std::size_t i = 0; i < path_.size(); ++i)
      if (i != 1 || path_[1] != path_[0])
        text << (i == 0 ? "" : " / ") << path_[i];  // a test case is a section too
    text << '\n';
    return text.str();
  }

  std::vector<std::string> path_;  // the test case, then its sections
  Index failed_here_ = 0;
  bool is_dying_ = false;
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

/// Whether `--verbose` is among the arguments; taken off the command line.
bool take_verbose(int& argc, char** argv) {
  char** const end = std::remove_if(argv + 1, argv + argc,
                                    [](const char* word) { return std::string_view(word) == "--verbose"; });
  const bool is_there = end != argv + argc;
  argc = static_cast<int>(end - argv);
  return is_there;
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

RunsOn::RunsOn(std::vector<int> devices, std::vector<int> on_cuda) {
  if (on_cuda.empty())
    std::ranges::copy_if(devices, std::back_inserter(on_cuda), [](int n) { return n <= 4; });
  if (!numbers_of_devices().emulated.empty()) throw std::logic_error("expected one RunsOn, given two");
  numbers_of_devices() = {std::move(devices), std::move(on_cuda)};
}

EndsAtFirstFailure::EndsAtFirstFailure() {
  brevity().is_on = true;
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
