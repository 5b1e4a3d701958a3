#pragma once

/// The variants that cut matrices in blocks, as the chapter registers them.

#include "engine/program/registry.hpp"

namespace shard::meshes {

/// These variants, and behind them `summa`, `cannon` and `gather-both`.
std::vector<Variant> with_blocks(std::vector<Variant> others);

}  // namespace shard::meshes
