/// Jobs of devices in one process, which run one at a time.

#include "emu/local/job.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "emu/local/scheduler.hpp"
#include "engine/device/runtime/job.hpp"

namespace shard {

namespace runtime {

void Job::start(int&, char**&) {}

void Job::finish(int) {}

void Job::fail(Code code, const std::string& line) {
  print_error(line);
  std::fflush(nullptr);
  std::_Exit(static_cast<int>(code));
}

namespace {

/// \throws Error usage
int number_of_devices() {
  const char* text = std::getenv("SHARDBOOK_DEVICES");
  if (text == nullptr) return 1;
  char* end = nullptr;
  const long devices = std::strtol(text, &end, 10);
  constexpr long most = 65536;
  if (*text == '\0' || *end != '\0' || devices < 1 || devices > most)
    throw Error(Code::usage,
                fmt::format("SHARDBOOK_DEVICES: expected 1 to {} devices, given {}", most, text));
  return static_cast<int>(devices);
}

}  // namespace
}  // namespace runtime

bool devices_share_a_process() {
  return true;
}

void local::run_job(int devices, const std::function<void(Communicator& world)>& body, Absence* absence) {
  int argc = 0;
  char** argv = nullptr;
  auto run_device = [&] {
    runtime::Job::start(argc, argv);
    runtime::run_in_world([&](Communicator& world) { return body(world), 0; });
  };
  Scheduler::run(devices, run_device, absence);
}

int run_on_devices(int& argc, char**& argv, const std::function<int(Communicator& world)>& body) {
  if (local::Scheduler::instance().devices() > 0)
    refuse(Code::argument, "run_on_devices", "one call in a program", "another one");
  // If standard input is closed, the next opened file would get its number. Reads of this one fail, too.
  if (fcntl(STDIN_FILENO, F_GETFD) < 0) static_cast<void>(open("/dev/null", O_WRONLY));
  int devices = 1;
  try {
    devices = runtime::number_of_devices();
  } catch (const Error& error) {
    runtime::print_error(error.what());
    return error.exit_code();
  }
  int exit_code = 0;
  local::Scheduler::run(devices, [&] {
    runtime::Job::start(argc, argv);
    exit_code = runtime::run_as_device(body);  // the same on all devices
  });
  return exit_code;
}

}  // namespace shard
