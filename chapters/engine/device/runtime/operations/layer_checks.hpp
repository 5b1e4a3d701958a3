#pragma once

/// The checks of the arguments of layer operations, for both backends. All throw Error argument.

#include "engine/device/runtime/operations/argument_checks.hpp"

namespace shard {

/// Both are matrices, of the same shape.
void require_same_matrices(const char* call, const Tensor& a, const Tensor& b);
/// t is a matrix (m, n), and `numbers` is (m).
void require_one_for_each_row(const char* call, const Tensor& t, const Tensor& numbers);
/// t is a matrix (m, n), and `numbers` is (n).
void require_one_for_each_column(const char* call, const Tensor& t, const Tensor& numbers);
/// 0 or a power of two.
void require_unit(float unit, float limit);
/// The angle of each pair of a head at position 1: base^(−2j/d) for j from 0 to below d/2.
std::vector<double> angles_of_a_head(const char* call, const Tensor& t, std::span<const Index> positions,
                                     Index head_dim, double base);
void require_addends(const Tensor& rows, std::span<const Index> at, const Tensor& into);
void require_subtrahends(const Tensor& t, std::span<const Index> columns, const Tensor& values);

}  // namespace shard
