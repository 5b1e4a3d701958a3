/// The main function of test programs whose devices are in this process. Each test case runs on each number
/// of devices that its file names, in one job each, and on a part of a larger group (TestOptions).

#include <algorithm>
#include <iostream>
#include <iterator>

#include "emu/local/job.hpp"
#include "tests/harness/main.hpp"

namespace shard::testing {
namespace {

class DeviceListener : public FailureListener {
 public:
  using FailureListener::FailureListener;
  static std::string getDescription() { return "names the device whose assertion failed"; }
};
CATCH_REGISTER_LISTENER(DeviceListener)

/// Runs the body on devices {4, 1, 3} of five, in that order, and at the same time on {0, 2}.
void run_in_groups(void (*body)()) {
  local::run_job(5, [&](Communicator& world) {
    const int me = this_device();
    const bool is_odd = me != 0 && me != 2;
    const std::unique_ptr<Communicator> part = world.split(is_odd, me == 4 ? -1 : me);
    group().set_inner(*part);
    body();
  });
}

int run_tests(int argc, char** argv) {
  take_options(argc, argv);
  const int failed = run_session(argc, argv, [](Catch::ConfigData& config) {
    restrain(config, true);
    if (test_options().brief) config.abortAfter = 1;
  });
  return failed == 0 ? 0 : 1;
}

}  // namespace

bool on_processes() {
  return false;
}

void on_each_device(const char* file, void (*body)()) {
  RunsOn numbers = numbers_of(file);
  std::vector<int>& all = numbers.in_one_process;
  if (test_options().all) std::ranges::copy(numbers.with_all, std::back_inserter(all));
  const bool also_in_groups = all.size() > 2 && !test_options().devices;
  if (test_options().devices) all = {*test_options().devices};
  for (const int devices : all) {
    CAPTURE(devices);
    local::run_job(devices, [&](Communicator& world) {
      group().set_inner(world);
      body();
    });
    if (failures_here > 0) return;
  }
  if (also_in_groups) run_in_groups(body);
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
