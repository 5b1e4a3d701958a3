#pragma once

/// Results that a wrong engine may compute for an exact problem. They explain a result that differs.

#include "engine/proof/compare.hpp"
#include "engine/workloads/workload.hpp"

namespace shard {

/// The results of the workload's known mistakes, and of steps in which each device counts only one of several
/// micro-batches.
std::vector<OtherResults> other_versions(const ExactProblem& problem, int devices, Communicator& group);

/// The results of `now`, the problem after a step from `before`, if this device has not updated some weights,
/// or has updated only its own rows.
std::vector<OtherResults> stale_versions(const ExactProblem& before, const ExactProblem& now, int devices,
                                         int device, Communicator& group);

}  // namespace shard
