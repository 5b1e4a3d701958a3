#pragma once

#include <optional>
#include <string_view>

#include "engine/device/split.hpp"

namespace shard {

/// The part of a training step.
enum class Phase { none, forward, loss, backward, optimizer };
std::string_view name(Phase phase);

/// What this device is doing. Base classes of engines say it, and observers write it beside each event.
struct Doing {
  Phase phase = Phase::none;
  std::optional<Index> micro_batch = {};
  std::optional<int> stage = {};  ///< of a pipeline

  /// Of the current device.
  static Doing& now();

  /// While such an object lives, the device does this. What is not given stays as it was. A step goes forward once:
  /// behind a backward pass, what was forward around it is backward, such as the reduction of its gradients.
  class Within {
   public:
    explicit Within(Phase phase, std::optional<Index> micro_batch = {}, std::optional<int> stage = {});
    ~Within();
    Within(const Within&) = delete;
    Within& operator=(const Within&) = delete;

   private:
    Phase phase_;
    std::optional<Index> micro_batch_;
    std::optional<int> stage_;
  };
};

}  // namespace shard
