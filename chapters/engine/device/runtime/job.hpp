#pragma once

/// How a device begins and ends a job, with a result or with an error.

#include <functional>
#include <string>

#include "engine/device/device.hpp"

namespace shard::runtime {

/// What processes and devices of one process do in their own ways (processes/job.cpp, emu/local/job.cpp).
class Job {
 public:
  /// Begins the job. Call it before any group is made.
  static void start(int& argc, char**& argv);
  /// Ends the job. Call it when all groups are destroyed. The process must end with this exit code.
  static void finish(int exit_code);
  /// Ends the whole job with this exit code. The line is printed once: by the first device that fails, or, without
  /// flight records (flight_record.hpp), by device 0 if it still answers.
  [[noreturn]] static void fail(Code code, const std::string& line);
};

/// Runs the body as the current device of a job that has begun, and waits for the other devices to end. Returns
/// the largest exit code.
int run_in_world(const std::function<int(Communicator& world)>& body);
/// Runs the body as run_in_world does; an exception ends the whole job.
int run_as_device(const std::function<int(Communicator& world)>& body);

/// Prints the line on stderr in one write, so that lines of several devices do not mix. Escapes control
/// characters, which a terminal would obey.
void print_error(const std::string& line);

}  // namespace shard::runtime
