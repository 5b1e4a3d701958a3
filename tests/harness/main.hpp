#pragma once

/// What both mains of the test programs are made of; each includes it, and nobody else: on how many devices tests run, and how a failure is told.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "engine/device/error.hpp"
#define SHARDBOOK_TEST_MAIN
#include "tests/harness/catch.hpp"

namespace shard::testing {

/// On how many devices this program's tests are to run.
struct NumbersOfDevices {
  std::vector<int> in_one_process = {1};
  std::vector<int> processes, on_cuda;
  bool also_in_groups = false;
  bool are_said = false;
};
inline NumbersOfDevices& numbers_of_devices() {
  static NumbersOfDevices numbers;  // here, since tests' sources write to it before main
  return numbers;
}

/// As `harness/cases` reads it.
inline int print_numbers_of_devices() {
  const NumbersOfDevices& n = numbers_of_devices();
  fmt::print("[{{\"devices\": {}, \"on_cuda\": {}}}]\n", n.processes, n.on_cuda);
  return 0;
}

/// Whether tests end at the first failure, and what has failed in this test case on this device.
struct Brevity {
  bool is_on = false;
  Index failures_here = 0;
};
inline Brevity& brevity() {
  static Brevity instance;  // here, since tests' sources write to it before main
  return instance;
}

/// Whether `--verbose` is among the arguments; taken off the command line.
inline bool take_verbose(int& argc, char** argv) {
  char** const end = std::remove_if(argv + 1, argv + argc,
                                    [](const char* word) { return std::string_view(word) == "--verbose"; });
  const bool is_there = end != argv + argc;
  argc = static_cast<int>(end - argv);
  return is_there;
}

/// Names the device whose assertion failed.
class FailureListener : public Listener {
 public:
  using Listener::Listener;

  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    path_ = {info.name};
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

 protected:
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
  bool is_dying_ = false;
};

RunsOn::RunsOn(std::vector<int> devices, std::vector<int> on_cuda) : RunsOn(devices, devices, on_cuda) {}

RunsOn::RunsOn(std::vector<int> in_one_process, std::vector<int> processes, std::vector<int> on_cuda) {
  if (on_cuda.empty())
    std::ranges::copy_if(processes, std::back_inserter(on_cuda), [](int n) { return n <= 4; });
  if (std::exchange(numbers_of_devices().are_said, true))
    throw std::logic_error("expected one RunsOn, given two");
  const bool are_many = in_one_process.size() > 2;
  numbers_of_devices() = {std::move(in_one_process), std::move(processes), std::move(on_cuda), are_many,
                          true};
}

EndsAtFirstFailure::EndsAtFirstFailure() {
  brevity().is_on = true;
}

}  // namespace shard::testing
