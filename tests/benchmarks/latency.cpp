/// latency KIND: makes one fatal mistake on 2 devices or more, and prints its time: "at 12.345678", in
/// seconds of the monotonic clock. ./tests/bench measures when the job reports it.

#include <csignal>
#include <cstdio>
#include <map>
#include <string>
#include <thread>

#include "engine/device/device.hpp"

using namespace shard;

namespace {

void say_when() {
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  std::printf("at %.6f\n", now.count());
  std::fflush(stdout);
}

/// The last device makes another call.
void mismatch(Communicator& world, bool is_last) {
  if (is_last) {
    say_when();
    world.broadcast_async(Tensor({4}), 0).get();
  } else {
    world.all_reduce_async(Tensor({4}), ReduceOp::sum).get();
  }
}

/// Every device receives from the one on its left, and no device has sent.
void deadlock(Communicator& world, bool is_last) {
  if (is_last) say_when();
  world.receive((world.device_id() + world.num_devices() - 1) % world.num_devices());
}

/// The last device is killed.
void loss(Communicator& world, bool is_last) {
  if (is_last) {
    say_when();
    std::raise(SIGKILL);
  }
  world.barrier();
}

}  // namespace

int main(int argc, char** argv) {
  return run_on_devices(argc, argv, [&](Communicator& world) {
    const std::map<std::string, void (*)(Communicator&, bool)> kinds = {
        {"mismatch", mismatch}, {"deadlock", deadlock}, {"loss", loss}};
    const bool is_last = world.device_id() == world.num_devices() - 1;
    world.barrier();
    if (is_last) std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the others wait by then
    kinds.at(argc == 2 ? argv[1] : "")(world, is_last);
    return 0;
  });
}
