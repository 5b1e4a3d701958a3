#pragma once

#include <vector>

#include "engine/device/operations.hpp"

namespace shard::runtime {

/// The columns of the k largest elements of each row, as top_k. Each backend implements it.
Later<std::vector<Index>> largest_columns(const Tensor& t, Index k);
/// How often each of them occurs, as top_k_counts. Each backend implements it.
Tensor largest_counts(const Tensor& t, Index k);
/// How often each of n columns occurs.
Tensor counted(const std::vector<Index>& columns, Index n);
/// `rows` rows choose k of n columns each, round-robin.
std::vector<Index> columns_in_turn(Index rows, Index k, Index n);

}  // namespace shard::runtime
