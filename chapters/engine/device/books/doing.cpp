#include "engine/device/books/doing.hpp"

#include <array>

#include "engine/device/this_device.hpp"

namespace shard {

std::string_view name(Phase phase) {
  constexpr std::array<std::string_view, 5> names = {"", "forward", "loss", "backward", "optimizer"};
  return names[static_cast<std::size_t>(phase)];
}

Doing& Doing::now() {
  return device().state<Doing>();
}

Doing::Within::Within(Phase phase, std::optional<Index> micro_batch, std::optional<int> stage) {
  Doing& now = Doing::now();
  phase_ = now.phase;
  micro_batch_ = now.micro_batch;
  stage_ = now.stage;
  now = {phase, micro_batch ? micro_batch : micro_batch_, stage ? stage : stage_};
}
Doing::Within::~Within() {
  const bool was_backward = now().phase == Phase::backward;
  now() = {was_backward && phase_ == Phase::forward ? Phase::backward : phase_, micro_batch_, stage_};
}

}  // namespace shard
