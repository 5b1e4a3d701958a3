#include "engine/device/runtime/own_thread.hpp"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "engine/device/error.hpp"
#include "engine/device/runtime/watchdog/control_plane.hpp"

namespace shard::runtime {

namespace {

using namespace std::chrono_literals;

std::atomic<bool> another_has_called = false;

[[noreturn]] void end_job() {
  ControlPlane::instance().fail(
      Code::argument,
      fmt::format(
          "device {}: a call to the device, or an operation on tensors: expected from the thread that runs "
          "the program, given from a second thread",
          this_device()));
}

}  // namespace

void require_own_thread() {
  static const std::thread::id owner = std::this_thread::get_id();
  const bool is_owner = std::this_thread::get_id() == owner;
  if (is_owner && !another_has_called.load(std::memory_order_relaxed)) return;
  if (is_owner) end_job();
  // Only one thread may use MPI at a time. So the owner ends the job at its next call. If it makes none within a
  // second, it probably waits for this thread, which then ends the job itself.
  if (another_has_called.exchange(true)) std::this_thread::sleep_for(1h);
  std::this_thread::sleep_for(1s);
  end_job();
}

}  // namespace shard::runtime
