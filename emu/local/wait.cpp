/// Waits of devices in one process, which run one at a time: the scheduler lets the others run, and finds deadlocks.

#include "engine/device/runtime/wait.hpp"

#include "emu/local/scheduler.hpp"

namespace shard::runtime {

const int Wait::spins_before_a_pause = 1;

void Wait::pause(const std::function<Blocked()>& describe) {
  local::Scheduler::instance().wait(describe);
}
void Wait::listen(const std::function<Blocked()>&) {}
Wait::~Wait() = default;

void Wait::let_others_run() {
  local::Scheduler::instance().yield();
}

void Wait::end_search() {}

}  // namespace shard::runtime
