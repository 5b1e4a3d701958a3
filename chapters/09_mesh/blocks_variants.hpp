#pragma once

/// The variants that cut matrices in blocks, as the chapter registers them.

#include "engine/program/registry.hpp"

namespace shard::meshes {

/// `summa`, `cannon` and `gather-both`.
std::vector<Variant> block_variants();

}  // namespace shard::meshes
