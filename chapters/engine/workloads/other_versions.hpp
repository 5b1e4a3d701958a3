#pragma once

/// Results that a wrong engine may compute for an exact problem. They explain a result that differs.

#include "engine/proof/compare.hpp"
#include "engine/workloads/workload.hpp"

namespace shard {

/// The results of the workload's known mistakes, on the devices of this group.
std::vector<OtherResults> other_versions(const ExactProblem& problem, Communicator& group);

/// The results of `now`, the problem after a step from `before`, if this device has not updated some weights,
/// or has updated only its own rows.
std::vector<OtherResults> stale_versions(const ExactProblem& before, const ExactProblem& now, int devices,
                                         int device, Communicator& group);

}  // namespace shard
