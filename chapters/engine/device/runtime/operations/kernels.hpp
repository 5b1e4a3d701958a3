#pragma once

/// What a backend computes for each operation of operations.hpp and layer_operations.hpp.
///
/// The operation (operations.cpp, layer_operations.cpp) has checked the arguments, booked the costs and
/// allocated the result. Its kernel writes each element of the result, whose values are undefined before. There
/// is at least one element to write. A tensor that is written in place comes first.

#include <vector>

#include "engine/device/layer_operations.hpp"
#include "engine/device/runtime/operations/argument_checks.hpp"

namespace shard::kernels {

/// \name Memory, and copies from and to the host
/// @{
std::shared_ptr<Storage> allocate(Index bytes, Purpose purpose);
void fill_with_zeros(Tensor& t);
void copy(const Tensor& t, Tensor& copy);
void write_all(Tensor& t, std::span<const float> values);
void write(Tensor& t, int axis, Range range, std::span<const float> values);
void read(const Tensor& t, Index first, std::span<float> values);
/// All elements as they are now.
Later<std::vector<float>> read_later(const Tensor& t);
/// @}

/// c = a b + keep c, in `precision()`. No extent is 0. Operands are in bf16 only if products are.
void product(Operand a, Operand b, Tensor& c, Extents e, float keep);
void to_bf16(const Tensor& matrix, Tensor& pairs);
void sum_of_bf16(const Tensor& pairs, Tensor& sums);

/// \name Functions of single elements
/// `h` may be `z`.
/// @{
void relu(const Tensor& z, Tensor& h);
void silu(const Tensor& z, Tensor& h);
void gelu(const Tensor& z, Tensor& h);
void sigmoid(Tensor& z);
void hyperbolic_tangent(Tensor& z);
void scale(Tensor& t, float factor);
void inverse_root(Tensor& t, float factor, float epsilon);
void round_to(Tensor& t, float unit, float limit);
void relu_backward(Tensor& dh, const Tensor& z);
void sigmoid_backward(Tensor& dh, const Tensor& h);
void hyperbolic_tangent_backward(Tensor& dh, const Tensor& h);
void silu_backward(Tensor& dh, const Tensor& z);
void gelu_backward(Tensor& dh, const Tensor& z);
void add(Tensor& a, const Tensor& b);
void subtract(Tensor& a, const Tensor& b);
void multiply(Tensor& a, const Tensor& b);
void scaled_difference(Tensor& target, const Tensor& output, float factor);
Later<double> sum_of_squares(const Tensor& t);
bool all_finite(const Tensor& t);
/// @}

/// \name Copies of the slice `range` along an axis, from it and to it
/// @{
void copy_slice(const Tensor& t, int axis, Range range, Tensor& part);
void paste_slice(Tensor& t, int axis, Range range, const Tensor& part);
/// @}

/// \name Updates of these elements of a parameter
/// @{
void sgd_update(Tensor& w, Range elements, const Tensor& g, float rate);
void integer_update(Tensor& w, Range elements, const Tensor& g);
void adam_update(Tensor& w, Range elements, const Tensor& g, Tensor& m, Tensor& v,
                 const AdamSettings& settings, const AdamStep& step);
/// @}

/// \name Rows and columns
/// @{
void row_sums(const Tensor& t, Tensor& sums);
void row_dots(const Tensor& a, const Tensor& b, Tensor& dots);
void row_max(const Tensor& t, Tensor& most);
void column_sums(const Tensor& t, Tensor& sums);
void column_dots(const Tensor& a, const Tensor& b, Tensor& dots);
void scale_rows(Tensor& t, const Tensor& factors);
void divide_rows(Tensor& t, const Tensor& divisors);
void add_to_columns(Tensor& t, const Tensor& column);
void scale_columns(Tensor& t, const Tensor& factors);
void add_to_rows(Tensor& t, const Tensor& row);
void add_numbers_to_rows(Tensor& t, std::span<const float> row);
void exponentials(Tensor& z, const Tensor& largest, ExponentialBase base);
void softmax(Tensor& z);
void softmax_backward(Tensor& dp, const Tensor& p);
/// @}

/// \name Attention
/// @{
/// `at_least` may be null.
void powers_of_scores(Tensor& scores, const ScoreRule& rule, const Tensor* at_least, Tensor& largest,
                      Tensor& sums);
void softmax_of_scores(Tensor& scores, const ScoreRule& rule, const Tensor& largest, const Tensor& sums);
void softmax_of_scores_backward(Tensor& dp, const Tensor& p, const Tensor& dots, float factor);
void stack_heads(const Tensor& t, const HeadBlock& block, Tensor& stack);
void add_heads(Tensor& into, const HeadBlock& block, const Tensor& stack);
/// `angles`: of each pair at position 1. `direction` is 1, or -1 for the inverse.
void rotate(Tensor& t, std::span<const Index> positions, const std::vector<double>& angles, double direction);
/// @}

/// \name Rows and columns by indices
/// @{
/// The columns of the k largest elements of each row, as top_k, and how often each of them occurs.
Later<std::vector<Index>> largest_columns(const Tensor& t, Index k);
Tensor largest_counts(const Tensor& t, Index k);
void take_columns(const Tensor& t, const Indices& columns, Index k, Tensor& taken);
void put_columns(Tensor& zeros, const Tensor& values, const Indices& columns);
void gather_rows(const Tensor& t, const Indices& at, Tensor& rows);
void scatter_rows(Tensor& into, const Tensor& rows, const Indices& at);
void scale_rows_at(Tensor& rows, const Tensor& factors, const Indices& at);
/// Without `weights`, all are 1. k is not 0.
void combine_rows(const Tensor& rows, const Indices& slots, const Tensor* weights, Index k, Tensor& sums);
void dot_rows(const Tensor& t, const Tensor& rows, const Indices& slots, Index k, Tensor& dots);
void scatter_add_rows(Tensor& into, const Tensor& rows, const Indices& at);
void losses_of_labels(const Tensor& largest, const Tensor& sums, const Tensor& of_labels,
                      const Indices& labels, ExponentialBase base, Tensor& losses);
void subtract_at_columns(Tensor& t, const Indices& columns, const Tensor& values);
/// @}

}  // namespace shard::kernels

namespace shard::runtime {

/// \name What kernels of top_k share
/// @{
/// How often each of n columns occurs.
Tensor counted(const std::vector<Index>& columns, Index n);
/// `rows` rows choose k of n columns each, round-robin.
std::vector<Index> columns_in_turn(Index rows, Index k, Index n);
/// @}

}  // namespace shard::runtime
