#pragma once

#include <fmt/format.h>

#include "engine/checkpoint.hpp"
#include "engine/workloads/mlp_model.hpp"

namespace shard::tensor_parallel {

/// The number of layers in a checkpoint. This chapter cuts layers in blocks of two.
/// \throws Error file when it is odd
inline Index layers_in_blocks(const Checkpoint& checkpoint) {
  const Index layers = model_of(checkpoint).num_layers;
  if (layers % 2 != 0)
    throw Error(Code::file, fmt::format("{}: tensor parallel cuts blocks of two layers: expected an even "
                                        "number of layers, given {}",
                                        checkpoint.source(), layers));
  return layers;
}

}  // namespace shard::tensor_parallel
