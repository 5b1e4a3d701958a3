#pragma once

#include <memory>

#include "engine/proof/costs.hpp"
#include "engine/workloads/network/exact_network.hpp"

namespace shard {

class Journal;
class ShardedEngine;

/// A network whose tokens choose experts.
class RoutedNetwork {
 public:
  virtual ~RoutedNetwork() = default;

  /// False for a decoder without experts.
  virtual bool is_mixture() const { return true; }
  /// Notes the choices of an engine's last step.
  virtual void note(const ShardedEngine& engine, Journal& journal) const = 0;
  /// The choices of the engine's last step, for closed forms and comparisons.
  virtual std::shared_ptr<const StepData> choices(const ShardedEngine& engine) const = 0;
  /// The choices of a problem whose rows are divided over `devices` devices, from the definitions; null where only an
  /// engine knows them.
  virtual std::shared_ptr<const StepData> choices(const ExactProblem& /*problem*/, int /*devices*/) const {
    return nullptr;
  }
};

}  // namespace shard
