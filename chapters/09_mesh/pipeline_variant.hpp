#pragma once

#include "engine/program/registry.hpp"

namespace shard::meshes {

/// `data-pipeline-tensor` with its options.
Variant data_pipeline_tensor_variant();

}  // namespace shard::meshes
