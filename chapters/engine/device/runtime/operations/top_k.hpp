#pragma once

#include <vector>

#include "engine/device/operations.hpp"

namespace shard::runtime {

/// The columns of the k largest elements of each row, as top_k. Each backend implements it.
std::vector<Index> largest_columns(const Tensor& t, Index k);
/// `rows` rows choose k of n columns each, round-robin.
std::vector<Index> columns_in_turn(Index rows, Index k, Index n);

}  // namespace shard::runtime
