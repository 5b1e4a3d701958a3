/// The main of test programs whose devices are in this process: each test case runs on each number of devices that
/// the program names, one job after the other, and on a part of a larger group. `--devices N`: on N only.
/// `--verbose`: see EndsAtFirstFailure.

#include <charconv>
#include <iostream>
#include <optional>

#include "emu/local/job.hpp"
#include "tests/harness/devices.hpp"
#include "tests/harness/main.hpp"

namespace shard::testing {
namespace {

class DeviceListener : public FailureListener {
 public:
  using FailureListener::FailureListener;
  static std::string getDescription() { return "names the device whose assertion failed"; }
};
CATCH_REGISTER_LISTENER(DeviceListener)

/// On {4, 1, 3} of five devices, in that order, and at the same time on {0, 2}.
void run_in_groups(void (*body)()) {
  local::run_job(5, [&](Communicator& world) {
    const int me = this_device();
    const bool is_odd = me != 0 && me != 2;
    const std::unique_ptr<Communicator> part = world.split(is_odd, me == 4 ? -1 : me);
    group().set_inner(*part);
    body();
  });
}

/// The number behind `--devices`, taken off the command line.
std::optional<int> take_devices(int& argc, char** argv) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (argv[i] != std::string("--devices")) continue;
    const std::string text = argv[i + 1];
    int devices = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), devices);
    if (error != std::errc() || end != text.data() + text.size() || devices < 1)
      throw Error(Code::usage, "--devices: expected a number of devices, given " + text);
    std::copy(argv + i + 2, argv + argc, argv + i);
    argc -= 2;
    return devices;
  }
  return std::nullopt;
}

int run_tests(int argc, char** argv) {
  if (take_verbose(argc, argv)) brevity().is_on = false;
  if (const std::optional<int> devices = take_devices(argc, argv))
    numbers_of_devices().in_one_process = {*devices}, numbers_of_devices().also_in_groups = false;
  Catch::Session session;
  if (int refused = session.applyCommandLine(argc, argv); refused != 0) return refused;
  restrain(session.configData(), true);
  if (brevity().is_on) session.configData().abortAfter = 1;
  return session.run() == 0 ? 0 : 1;
}

}  // namespace

void on_each_device(void (*body)()) {
  for (const int devices : numbers_of_devices().in_one_process) {
    CAPTURE(devices);
    local::run_job(devices, [&](Communicator& world) {
      group().set_inner(world);
      body();
    });
    if (brevity().failures_here > 0) return;
  }
  if (numbers_of_devices().also_in_groups) run_in_groups(body);
}

/// A collective, as elsewhere: the devices see the same failures only when they meet.
bool is_to_end() {
  if (!brevity().is_on) return false;
  return std::ranges::max(group().exchange("failures", brevity().failures_here)) > 0;
}

}  // namespace shard::testing

int main(int argc, char** argv) {
  try {
    return shard::testing::run_tests(argc, argv);
  } catch (const shard::Error& error) {
    std::cerr << "error: " << error.what() << std::endl;
    return error.exit_code();
  }
}
