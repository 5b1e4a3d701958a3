#pragma once

/// What a wrong engine may have computed of an exact problem: with it, a result that differs is explained.

#include "engine/proof/compare.hpp"
#include "engine/workloads/workload.hpp"

namespace shard {

/// Other results of the problem: those of its workload's wrong versions, and those of a step in which each
/// device counts one of several micro-batches alone.
std::vector<OtherResults> other_versions(const ExactProblem& problem, int devices, Communicator& group);

/// Other results of `now`, the problem after a step from `before`: those of weights that this device has not
/// updated, or of which it has only its own rows.
std::vector<OtherResults> stale_versions(const ExactProblem& before, const ExactProblem& now, int devices,
                                         int device, Communicator& group);

}  // namespace shard
