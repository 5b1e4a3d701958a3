#pragma once

/// What both main functions of test programs share: numbers of devices, and the report of a failure.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "engine/device/error.hpp"
#define SHARDBOOK_TEST_MAIN
#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"

namespace shard::testing {

/// Numbers of devices, by file of tests.
inline std::map<std::string, RunsOn>& numbers_of_devices() {
  static std::map<std::string, RunsOn> numbers;  // local: tests' sources write to it before main
  return numbers;
}
inline RunsOn numbers_of(const char* file) {
  const auto found = numbers_of_devices().find(file);
  return found == numbers_of_devices().end() ? RunsOn() : found->second;
}

/// The options of the main function, not of Catch2.
struct TestOptions {
  bool all = false;            ///< `--all`: more numbers of devices
  bool brief = false;          ///< `--brief`: end after the first test case that fails on a device, in a line
  std::optional<int> devices;  ///< `--devices N`: only this number
};
inline TestOptions& test_options() {
  static TestOptions options;
  return options;
}
/// Assertions of this test case that failed on this device.
inline Index failures_here = 0;

/// \throws Error usage
inline int number_of_devices(const std::string& text) {
  char* end = nullptr;
  const long devices = std::strtol(text.c_str(), &end, 10);
  if (*end != '\0' || devices < 1 || devices > 65536)
    throw Error(Code::usage, "--devices: expected a number of devices, given " + text);
  return static_cast<int>(devices);
}

/// Removes the options above, and `--chapter NAME`, from the command line. \throws Error usage
inline void take_options(int& argc, char** argv) {
  int left = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const bool has_value = word == "--devices" || word == "--chapter";
    if (has_value && i + 1 == argc)
      throw Error(Code::usage, std::string(word) + ": expected a value, given none");
    if (word == "--all")
      test_options().all = true;
    else if (word == "--brief")
      test_options().brief = true;
    else if (word == "--chapter")
      chapter_under_test() = argv[++i];
    else if (word == "--devices")
      test_options().devices = number_of_devices(argv[++i]);
    else
      argv[left++] = argv[i];
  }
  argc = left;
}

/// Names the device whose assertion failed.
class FailureListener : public Listener {
 public:
  using Listener::Listener;

  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    path_ = {info.name};
    failures_here = 0;
  }
  void sectionStarting(const Catch::SectionInfo& info) override { path_.push_back(info.name); }
  void sectionEnded(const Catch::SectionStats&) override { path_.pop_back(); }

  void asserted(const Catch::AssertionStats& stats) override {
    if (stats.assertionResult.isOk()) return;
    if (stats.assertionResult.getResultType() == Catch::ResultWas::FatalErrorCondition) is_dying_ = true;
    if (failures_here++ > 0 && test_options().brief) return;  // --brief prints one line
    std::string text = test_options().brief ? line_of(stats) : describe(stats);
    std::fflush(stdout);
    std::fwrite(text.data(), 1, text.size(), stderr);  // in one call, since other devices write too
    std::fflush(stderr);
  }

 protected:
  /// A failure in one line: "device 2: a == b; notes; test case; FILE:LINE".
  std::string line_of(const Catch::AssertionStats& stats) const {
    const Catch::AssertionResult& result = stats.assertionResult;
    std::ostringstream text;
    text << "device " << this_device() << ": ";
    if (result.hasExpandedExpression()) text << result.getExpandedExpression() << "; ";
    for (auto note = stats.infoMessages.rbegin(); note != stats.infoMessages.rend(); ++note)
      text << note->message << "; ";  // the last note first
    text << path_[0] << "; " << result.getSourceInfo().file << ':' << result.getSourceInfo().line;
    std::string line = text.str();
    std::ranges::replace(line, '\n', ' ');
    return line + '\n';
  }

  /// "device 2: FILE:LINE: CHECK( a == b )", and below it the values of a and b, notes, and the test case.
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
        text << (i == 0 ? "" : " / ") << path_[i];  // a test case is a section, too
    text << '\n';
    return text.str();
  }

  std::vector<std::string> path_;  // the test case, then its sections
  bool is_dying_ = false;
};

/// Runs the test cases of the command line. `configure` changes Catch2's options. 0: all passed.
int run_session(int argc, char** argv, const std::function<void(Catch::ConfigData&)>& configure);

}  // namespace shard::testing
