#pragma once

#include "engine/mesh_shape.hpp"
#include "engine/workloads/block_traces.hpp"

namespace shard::meshes {

/// `decoder-data-tensor`: what one device sends, computes and holds. Over tensor it does what chapter 08's
/// `tensor` does with the sequences that it has. Over data it reduces the gradient of each weight.
Costs decoder_data_tensor_costs(const decoders::DecoderSetting& s, const MeshShape& mesh);

/// `decoder-fsdp-tensor`: over tensor the same. Over data a unit's weights are gathered before it computes,
/// and its gradients are reduced and scattered.
Costs decoder_fsdp_tensor_costs(const decoders::DecoderSetting& s, const MeshShape& mesh);

}  // namespace shard::meshes
