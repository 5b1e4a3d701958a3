#include "engine/engines/tape.hpp"

#include <utility>

#include "engine/device/this_device.hpp"

namespace shard {

InferenceMode::InferenceMode() : before_(std::exchange(device().is_inference, true)) {}
InferenceMode::~InferenceMode() {
  device().is_inference = before_;
}

bool InferenceMode::is_on() {
  return device().is_inference;
}

}  // namespace shard
