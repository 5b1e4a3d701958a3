#pragma once

/// The checks of layer operations' arguments, for all backends. All throw Error argument.

#include "engine/device/layer_operations.hpp"
#include "engine/device/runtime/operations/argument_checks.hpp"

namespace shard {

/// Both must be matrices of the same shape.
void require_same_matrices(const char* call, const Tensor& a, const Tensor& b);
/// t must be a matrix (m, n), and `numbers` (m).
void require_one_for_each_row(const char* call, const Tensor& t, const Tensor& numbers);
/// t must be a matrix (m, n), and `numbers` (n).
void require_one_for_each_column(const char* call, const Tensor& t, const Tensor& numbers);
/// Scores must be a stack of matrices (b, m, n), and `numbers` (b m), or null. Returns b m.
Index rows_of_scores(const char* call, const Tensor& scores, std::initializer_list<const Tensor*> numbers);
/// The shape of a stack of heads of t. \throws Error argument when t does not have them
Shape shape_of_heads(const char* call, const Tensor& t, const HeadBlock& block);
/// round_to: the unit must be 0 or a power of two, and the limit at least 0.
void require_unit(float unit, float limit);
/// Checks the arguments of rotate. Returns the angle of each pair at position 1: base^(−2j/d), 0 <= j < d/2.
std::vector<double> angles_of_a_head(const char* call, const Tensor& t, std::span<const Index> positions,
                                     Index head_dim, double base);
void require_losses(const Tensor& largest, const Tensor& sums, const Tensor& of_labels,
                    std::span<const Index> labels);
void require_addends(const Tensor& rows, std::span<const Index> at, const Tensor& into);
void require_subtrahends(const Tensor& t, std::span<const Index> columns, const Tensor& values);

}  // namespace shard
