#pragma once

#include <memory>
#include <string>

#include "engine/weights/checkpoint.hpp"

namespace shard {

/// The parameters of a safetensors file, float32 (or F64, F16, BF16, converted).
/// \throws Error file when it is missing, unreadable or malformed; slices: not_finite for a NaN or an
/// infinity
std::unique_ptr<Checkpoint> open_checkpoint(const std::string& path);

}  // namespace shard
