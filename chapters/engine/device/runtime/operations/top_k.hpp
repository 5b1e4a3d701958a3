#pragma once

#include <vector>

#include "engine/device/operations.hpp"

namespace shard::runtime {

/// How often each of n columns occurs.
Tensor counted(const std::vector<Index>& columns, Index n);
/// `rows` rows choose k of n columns each, round-robin.
std::vector<Index> columns_in_turn(Index rows, Index k, Index n);

}  // namespace shard::runtime
