#pragma once

#include <vector>

#include "engine/device/operations.hpp"

namespace shard::runtime {

/// What each backend does of top_k: the columns of the k largest elements of each row.
std::vector<Index> largest_columns(const Tensor& t, Index k);
/// So many rows choose k of n columns each, in turn.
std::vector<Index> columns_in_turn(Index rows, Index k, Index n);

}  // namespace shard::runtime
