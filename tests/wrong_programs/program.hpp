#pragma once

/// A program of the catalogue, and the lines that it must print.

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/harness/cases.hpp"
#include "tests/harness/devices.hpp"

namespace shard::testing {

enum class Runs {
  together,  ///< one after the other in one job: after an error, the devices continue
  alone      ///< in a job of its own, which the error ends
};

/// A program, on three devices. Where one device alone is wrong, it is device 1.
struct Program {
  std::string call;    ///< "all_reduce"
  std::string class_;  ///< the mistake: "left out in the middle"; or why a right program looks suspicious
  int code = 0;        ///< 0: nobody is wrong
  /// All lines that it must print. `#` stands for any number.
  std::vector<std::string> says;
  Body body;
  Runs runs;
};
using Programs = std::vector<Program>;

/// A program after which the devices go on.
inline Program together(std::string call, std::string class_, int code, std::vector<std::string> says,
                        Body body) {
  return {std::move(call), std::move(class_), code, std::move(says), std::move(body), Runs::together};
}
/// One that ends its job.
inline Program on_its_own(std::string call, std::string class_, int code, std::vector<std::string> says,
                          Body body) {
  return {std::move(call), std::move(class_), code, std::move(says), std::move(body), Runs::alone};
}

inline constexpr int number_of_devices = 3;
inline constexpr int odd = 1;  ///< the device that is wrong

/// The source line of a call, and the call as a function of the communicator `g`. A macro gives both one line,
/// however a table is formatted.
#define CALL(call) \
  ::shard::SourceLine::current(), []([[maybe_unused]] ::shard::Communicator& g) { return call; }

/// "(call # at tests/wrong_programs/calls.cpp:33)"
inline std::string call_at(SourceLine where) {
  return fmt::format("(call # at {})", to_string(where));
}

/// \name Lines about deadlocks
/// @{
inline constexpr const char* all_stuck = "deadlock: devices 0 to 2 can never go on";
inline constexpr const char* has_ended =
    "  a device has ended, and others wait for calls that it never made: do all make the same number of "
    "calls (uneven batches)?";
/// If one device waits in a call, and all others in another one.
inline std::string alone(int device) {
  return fmt::format("  they wait in calls that do not belong together: look at what device {} alone does",
                     device);
}
/// @}

/// \name The parts of the catalogue
/// @{
Programs mismatches();
Programs bad_arguments();
Programs deadlocks();
Programs messages();
Programs lost_devices();
Programs dropped_futures();
Programs right_programs();
/// @}

}  // namespace shard::testing
