#include "engine/device/this_device.hpp"

#include <atomic>

namespace shard {

namespace {

constinit thread_local Device* running = nullptr;

/// The device of a process with only one. Never destroyed: a static tensor may be destroyed after it.
Device& device_of_process() {
  static auto* device = new Device;
  return *device;
}

}  // namespace

Device& device() {
  return running != nullptr ? *running : device_of_process();
}

/// Destroys states in the reverse order of their making: later ones may use earlier ones.
Device::~Device() {
  const Scope scope(*this);
  for (; !made_.empty(); made_.pop_back()) states_[made_.back()].reset();
}

std::size_t Device::next_number() {
  static std::atomic<std::size_t> next = 0;
  return next++;
}

Device::Scope::Scope(Device& device) : before_(std::exchange(running, &device)) {}
Device::Scope::~Scope() {
  running = before_;
}

}  // namespace shard
