#pragma once

#include "engine/mesh_shape.hpp"
#include "engine/schedules/schedule.hpp"
#include "engine/workloads/mlp.hpp"

namespace shard::meshes {

/// `data-pipeline-tensor`: what one device sends, computes and holds in a step with this schedule. b is its
/// part of the rows, over data, and f its part of the hidden width, over tensor.
///
/// - Along pipeline: between two stages at different places, each of its rows goes forward as an activation
///   and back as its gradient. These are b D elements each way, in a message for each micro-batch with rows.
/// - Over tensor: two all-reduces of each micro-batch for each of its blocks; without dL/dx, one for block 0.
/// - Over data: one all-reduce of each of its weights' gradients, D f elements, for all micro-batches.
/// - Holds: the maximum over the schedule's actions, and the reductions after them (pipeline_costs.cpp).
Costs data_pipeline_tensor_costs(const MlpSetting& s, const MeshShape& mesh, const Schedule& schedule);

}  // namespace shard::meshes
