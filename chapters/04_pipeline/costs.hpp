#pragma once

#include <vector>

#include "engine/schedules/schedule.hpp"
#include "engine/workloads/mlp/mlp.hpp"

namespace shard::pipeline {

/// What one device of a pipeline sends, computes and holds in a step with this schedule and these stages.
///
/// - Sends: between two stages on different devices, every row goes forward as an activation and back as its
///   gradient. These are B w elements each way for a width w, in M messages.
/// - Computes: the products of its layers, in any schedule.
/// - Holds: the maximum over the schedule's actions, each of which allocates and frees memory (costs.cpp).
Costs pipeline_costs(const MlpSetting& s, const Schedule& schedule, const std::vector<Range>& stages);

}  // namespace shard::pipeline
