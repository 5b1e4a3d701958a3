#pragma once

#include "08_decoder/sequence_cut.hpp"
#include "engine/mesh_shape.hpp"
#include "engine/workloads/block_traces.hpp"

namespace shard::meshes {

/// `five`: what one device sends, computes and holds in a step, with sequences cut like this over context.
///
/// - Along tensor: what chapter 08's `tensor` sends, for this device's tokens of each micro-batch.
/// - Along context: what `context` sends of this device's heads.
/// - Along expert: what `experts` sends. Devices along tensor send the same rows, each to its own part of an
///   expert.
/// - Along pipeline: each of its tokens' activations, and their gradients.
/// - Along data, context and expert together: one all-reduce of each gradient, for all micro-batches. For its
///   experts: along data and context together.
Costs five_costs(const decoders::DecoderSetting& s, const MeshShape& mesh, decoders::CutSequences cut,
                 Index micro_batches);

}  // namespace shard::meshes
