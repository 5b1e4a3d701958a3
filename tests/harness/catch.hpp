#pragma once

/// Hides the differences between Catch2 version 2 (Debian 12) and 3 (elsewhere). Tests include this header.
/// `main.hpp` defines SHARDBOOK_TEST_MAIN first, and gets listeners too. `session.cpp` runs the tests.

#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#ifdef SHARDBOOK_TEST_MAIN
#include <catch2/catch_session.hpp>
#include <catch2/catch_test_case_info.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
#endif
#define SHARDBOOK_CATCH_VERSION 3
#else
#ifdef SHARDBOOK_TEST_MAIN
#define CATCH_CONFIG_EXTERNAL_INTERFACES
#endif
#include <catch2/catch.hpp>
#define SHARDBOOK_CATCH_VERSION 2
#endif

#include <string>
#include <vector>

namespace shard::testing {

/// The numbers of devices for the tests of a file: `RUNS_ON(.in_one_process = {1, 3}, .processes = {3});`.
struct RunsOn {
  std::vector<int> in_one_process = {1};  ///< devices of one process: one job for each number
  std::vector<int> with_all = {};         ///< more numbers, with `--all`
  std::vector<int> processes = {};        ///< devices that are processes of the emulator: one job for each
  std::vector<int> on_cuda = {};          ///< the same for the CUDA backend
};
bool set_numbers_of_devices(const char* file, const RunsOn& numbers);
/// Whether `--all` was given: tests may take minutes.
bool with_all();
/// Whether devices are processes. What suites prove in one process need not be proved there again.
bool on_processes();
#define RUNS_ON(...)                                                       \
  [[maybe_unused]] static const bool INTERNAL_CATCH_UNIQUE_NAME(runs_on) = \
      ::shard::testing::set_numbers_of_devices(__FILE__, {__VA_ARGS__})

/// Calls the body of a file's test case on each device: once if this process is one device, or on all devices
/// of this process.
void on_each_device(const char* file, void (*body)());
#undef TEST_CASE
#undef SECTION  // Catch enters each once in a process: on one of its devices
#define TEST_CASE(...) SHARDBOOK_TEST_CASE(INTERNAL_CATCH_UNIQUE_NAME(on_a_device), __VA_ARGS__)
#define SHARDBOOK_TEST_CASE(body, ...)                \
  static void body();                                 \
  INTERNAL_CATCH_TESTCASE(__VA_ARGS__) {              \
    ::shard::testing::on_each_device(__FILE__, body); \
  }                                                   \
  static void body()

/// With `--brief`: whether an assertion of this test case has failed on some device, so that the test case
/// must end. A collective.
bool is_to_end();

/// A matcher: the text contains `part`.
inline auto contains(const std::string& part) {
#if SHARDBOOK_CATCH_VERSION == 3
  return Catch::Matchers::ContainsSubstring(part);
#else
  return Catch::Matchers::Contains(part);
#endif
}

#ifdef SHARDBOOK_TEST_MAIN

/// Receives every assertion and test case. A derived class defines the same functions in both versions.
#if SHARDBOOK_CATCH_VERSION == 3
using ListenerBase = Catch::EventListenerBase;
#else
using ListenerBase = Catch::TestEventListenerBase;
#endif

class Listener : public ListenerBase {
 public:
  using ListenerBase::ListenerBase;
  virtual void asserted(const Catch::AssertionStats& stats) = 0;

#if SHARDBOOK_CATCH_VERSION == 3
  void assertionEnded(const Catch::AssertionStats& stats) final {
    asserted(stats);
  }
#else
  bool assertionEnded(const Catch::AssertionStats& stats) final {
    asserted(stats);
    return true;
  }
#endif
};

/// No colours, since a launcher makes every output look like a terminal. Only device 0 writes a report file.
inline void restrain(Catch::ConfigData& config, bool may_report) {
#if SHARDBOOK_CATCH_VERSION == 3
  config.defaultColourMode = Catch::ColourMode::None;
  if (!may_report) config.defaultOutputFilename.clear(), config.reporterSpecifications.clear();
#else
  config.useColour = Catch::UseColour::No;
  if (!may_report) config.outputFilename.clear();
#endif
}

#endif

}  // namespace shard::testing
