/// The operations check their arguments, book their costs, and return tensors of the right shape.

#include <cmath>

#include "engine/device/runtime/notes.hpp"
#include "engine/device/runtime/operations/layer_checks.hpp"
#include "engine/device/runtime/operations/matmul.hpp"
#include "engine/device/runtime/operations/tensor_memory.hpp"
#include "engine/device/runtime/operations/top_k.hpp"

namespace shard {

using runtime::note_elementwise;

namespace {

/// A function of each element, in the tensor's memory or as a new tensor.
Tensor mapped(const char* call, Tensor&& t, SourceLine where) {
  const CallSite site(where);
  note_elementwise(call, t.size());
  return std::move(t);
}
Tensor mapped(const char* call, const Tensor& t, SourceLine where) {
  const CallSite site(where);
  note_elementwise(call, t.size());
  return TensorMemory::make(t.shape());
}

/// A function of the elements of two tensors of a shape, in the memory of the first.
Tensor combined(const char* call, Tensor&& a, const Tensor& b, SourceLine where) {
  const CallSite site(where);
  note_elementwise(call, b.size());
  require_same_shape(call, a, b);
  return std::move(a);
}

/// A function of each element and of its row's, or its column's, number.
Tensor with_rows(const char* call, Tensor&& t, const Tensor& numbers, SourceLine where) {
  const CallSite site(where);
  note_elementwise(call, t.size());
  require_one_for_each_row(call, t, numbers);
  return std::move(t);
}
Tensor with_columns(const char* call, Tensor&& t, const Tensor& numbers, SourceLine where) {
  const CallSite site(where);
  note_elementwise(call, t.size());
  require_one_for_each_column(call, t, numbers);
  return std::move(t);
}

/// Reduces one matrix, or two of one shape, to a number for each index of an axis.
Tensor folded(const char* call, const Tensor& a, const Tensor& b, int axis, SourceLine where) {
  const CallSite site(where);
  note_elementwise(call, a.size());
  require_matrix(call, a);
  require_same_matrices(call, a, b);
  return TensorMemory::make({a.extent(axis)});
}

void update(const char* call, Rows w, const Tensor& g, SourceLine where) {
  const CallSite site(where);
  note_elementwise(call, g.size());
  elements_to_update(call, w, g);
}

}  // namespace

void runtime::product(Operand, Operand, Tensor&, Extents, float) {}

Tensor to_bf16(const Tensor& matrix, SourceLine where) {
  const CallSite call(where);
  require_matrix("to_bf16", matrix);
  note_elementwise("to_bf16", matrix.size());
  return TensorMemory::make({matrix.extent(0), columns_of_pairs(matrix.extent(1))});
}

Tensor relu(const Tensor& z, SourceLine where) {
  return mapped("relu", z, where);
}
Tensor relu(Tensor&& z, SourceLine where) {
  return mapped("relu", std::move(z), where);
}
Tensor sigmoid(Tensor&& z, SourceLine where) {
  return mapped("sigmoid", std::move(z), where);
}
Tensor silu(const Tensor& z, SourceLine where) {
  return mapped("silu", z, where);
}
Tensor silu(Tensor&& z, SourceLine where) {
  return mapped("silu", std::move(z), where);
}
Tensor gelu(const Tensor& z, SourceLine where) {
  return mapped("gelu", z, where);
}
Tensor gelu(Tensor&& z, SourceLine where) {
  return mapped("gelu", std::move(z), where);
}
Tensor scale(Tensor&& a, float, SourceLine where) {
  return mapped("scale", std::move(a), where);
}
Tensor hyperbolic_tangent(Tensor&& z, SourceLine where) {
  return mapped("hyperbolic_tangent", std::move(z), where);
}
Tensor inverse_root(Tensor&& t, float, float, SourceLine where) {
  return mapped("inverse_root", std::move(t), where);
}
Tensor round_to(Tensor&& t, float unit, SourceLine where) {
  return round_to(std::move(t), unit, HUGE_VALF, where);
}
Tensor round_to(Tensor&& t, float unit, float limit, SourceLine where) {
  const CallSite call(where);
  require_unit(unit, limit);
  return unit == 0 && limit == HUGE_VALF ? std::move(t) : mapped("round_to", std::move(t), where);
}

Tensor relu_backward(Tensor&& dh, const Tensor& z, SourceLine where) {
  return combined("relu_backward", std::move(dh), z, where);
}
Tensor sigmoid_backward(Tensor&& dh, const Tensor& h, SourceLine where) {
  return combined("sigmoid_backward", std::move(dh), h, where);
}
Tensor hyperbolic_tangent_backward(Tensor&& dh, const Tensor& h, SourceLine where) {
  return combined("hyperbolic_tangent_backward", std::move(dh), h, where);
}
Tensor silu_backward(Tensor&& dh, const Tensor& z, SourceLine where) {
  return combined("silu_backward", std::move(dh), z, where);
}
Tensor gelu_backward(Tensor&& dh, const Tensor& z, SourceLine where) {
  return combined("gelu_backward", std::move(dh), z, where);
}
Tensor add(Tensor&& a, const Tensor& b, SourceLine where) {
  return combined("add", std::move(a), b, where);
}
Tensor subtract(Tensor&& a, const Tensor& b, SourceLine where) {
  return combined("subtract", std::move(a), b, where);
}
Tensor multiply(Tensor&& a, const Tensor& b, SourceLine where) {
  return combined("multiply", std::move(a), b, where);
}
Tensor scaled_difference(const Tensor& output, Tensor&& target, float, SourceLine where) {
  return combined("scaled_difference", std::move(target), output, where);
}
Tensor softmax(Tensor&& z, SourceLine where) {
  const CallSite call(where);
  require_matrix("softmax", z);
  return mapped("softmax", std::move(z), where);
}
Tensor softmax_backward(Tensor&& dp, const Tensor& p, SourceLine where) {
  const CallSite call(where);
  require_matrix("softmax_backward", p);
  return combined("softmax_backward", std::move(dp), p, where);
}

Tensor row_sums(const Tensor& t, SourceLine where) {
  return folded("row_sums", t, t, 0, where);
}
Tensor row_dots(const Tensor& a, const Tensor& b, SourceLine where) {
  return folded("row_dots", a, b, 0, where);
}
Tensor row_max(const Tensor& t, SourceLine where) {
  return folded("row_max", t, t, 0, where);
}
Tensor column_sums(const Tensor& t, SourceLine where) {
  return folded("column_sums", t, t, 1, where);
}
Tensor column_dots(const Tensor& a, const Tensor& b, SourceLine where) {
  return folded("column_dots", a, b, 1, where);
}
Tensor scale_rows(Tensor&& t, const Tensor& factors, SourceLine where) {
  return with_rows("scale_rows", std::move(t), factors, where);
}
Tensor divide_rows(Tensor&& t, const Tensor& divisors, SourceLine where) {
  return with_rows("divide_rows", std::move(t), divisors, where);
}
Tensor add_to_columns(Tensor&& t, const Tensor& column, SourceLine where) {
  return with_rows("add_to_columns", std::move(t), column, where);
}
Tensor exponentials(Tensor&& z, const Tensor& largest, ExponentialBase, SourceLine where) {
  return with_rows("exponentials", std::move(z), largest, where);
}
Tensor scale_columns(Tensor&& t, const Tensor& factors, SourceLine where) {
  return with_columns("scale_columns", std::move(t), factors, where);
}
Tensor add_to_rows(Tensor&& t, const Tensor& row, SourceLine where) {
  return with_columns("add_to_rows", std::move(t), row, where);
}
Tensor add_to_rows(Tensor&& t, std::span<const float> row, SourceLine where) {
  const CallSite call(where);
  require_row(t, row);
  return mapped("add_to_rows", std::move(t), where);
}

void assign(Rows rows, const Tensor& values, SourceLine where) {
  const CallSite call(where);
  note_elementwise("assign", values.size());
  require_shape("assign", rows.shape(), values);
}

Tensor concatenate(std::span<const Tensor* const> parts, int axis, SourceLine where) {
  const CallSite call(where);
  Tensor whole = TensorMemory::make(shape_of_concatenation(parts, axis));
  note_elementwise("concatenate", whole.size());
  return whole;
}

Later<double> sum_of_squares(const Tensor& t, SourceLine where) {
  const CallSite call(where);
  note_elementwise("sum_of_squares", t.size());
  return 0;
}

bool all_finite(const Tensor& t, SourceLine where) {
  const CallSite call(where);
  note_elementwise("all_finite", t.size());
  return true;
}

Later<std::vector<Index>> runtime::largest_columns(const Tensor& t, Index k) {
  return columns_in_turn(t.extent(0), k, t.extent(1));
}

Tensor runtime::largest_counts(const Tensor& t, Index k) {
  return counted(largest_columns(t, k), t.extent(1));
}

Tensor take_columns(const Tensor& t, const Indices& columns, Index k, SourceLine where) {
  const CallSite call(where);
  Tensor taken = TensorMemory::make(shape_of_taken(t, columns, k));
  note_elementwise("take_columns", taken.size());
  return taken;
}

Tensor put_columns(const Tensor& values, const Indices& columns, Index n, SourceLine where) {
  const CallSite call(where);
  note_elementwise("put_columns", values.size());
  return TensorMemory::make(shape_of_put(values, columns, n));
}

Tensor gather_rows(const Tensor& t, const Indices& at, SourceLine where) {
  const CallSite call(where);
  Tensor rows = TensorMemory::make(shape_of_gathered(t, at));
  note_elementwise("gather_rows", rows.size());
  return rows;
}

void scatter_rows(const Tensor& rows, const Indices& at, Tensor& into, SourceLine where) {
  const CallSite call(where);
  note_elementwise("scatter_rows", rows.size());
  require_places(rows, at, into);
}

Tensor scale_rows(Tensor&& rows, const Tensor& factors, const Indices& at, SourceLine where) {
  const CallSite call(where);
  require_factors(rows, factors, at);
  return mapped("scale_rows", std::move(rows), where);
}

Tensor combine_rows(const Tensor& rows, const Indices& slots, const Tensor& weights, SourceLine where) {
  const CallSite call(where);
  Tensor sums = TensorMemory::make(shape_of_combined(rows, slots, weights));
  note_elementwise("combine_rows", weights.extent(1) * sums.size());
  return sums;
}

Tensor combine_rows(const Tensor& rows, const Indices& slots, Index k, SourceLine where) {
  const CallSite call(where);
  Tensor sums = TensorMemory::make(shape_of_combined(rows, slots, k));
  note_elementwise("combine_rows", k * sums.size());
  return sums;
}

Tensor dot_rows(const Tensor& t, const Tensor& rows, const Indices& slots, Index k, SourceLine where) {
  const CallSite call(where);
  note_elementwise("dot_rows", k * t.size());
  return TensorMemory::make(shape_of_dots(t, rows, slots, k));
}

ScorePowers powers_of_scores(Tensor&& scores, const ScoreRule&, const Tensor* at_least, SourceLine where) {
  const CallSite call(where);
  const Index rows = rows_of_scores("powers_of_scores", scores, {at_least});
  return {mapped("powers_of_scores", std::move(scores), where), TensorMemory::make({rows}),
          TensorMemory::make({rows})};
}

Tensor softmax_of_scores(Tensor&& scores, const ScoreRule&, const Tensor& largest, const Tensor& sums,
                         SourceLine where) {
  const CallSite call(where);
  rows_of_scores("softmax_of_scores", scores, {&largest, &sums});
  return mapped("softmax_of_scores", std::move(scores), where);
}

Tensor softmax_of_scores_backward(Tensor&& dp, const Tensor& p, const Tensor& dots, float, SourceLine where) {
  const CallSite call(where);
  rows_of_scores("softmax_of_scores_backward", p, {&dots});
  return combined("softmax_of_scores_backward", std::move(dp), p, where);
}

Tensor stack_heads(const Tensor& t, const HeadBlock& block, SourceLine where) {
  const CallSite call(where);
  Tensor stack = TensorMemory::make(shape_of_heads("stack_heads", t, block));
  note_elementwise("stack_heads", stack.size());
  return stack;
}

void add_heads(const Tensor& stack, const HeadBlock& block, Tensor& into, SourceLine where) {
  const CallSite call(where);
  note_elementwise("add_heads", stack.size());
  require_shape("add_heads", shape_of_heads("add_heads", into, block), stack);
}

Tensor rotate(Tensor&& t, std::span<const Index> positions, Index head_dim, double base, SourceLine where) {
  const CallSite call(where);
  angles_of_a_head("rotate", t, positions, head_dim, base);
  return mapped("rotate", std::move(t), where);
}

Tensor rotate_backward(Tensor&& dt, std::span<const Index> positions, Index head_dim, double base,
                       SourceLine where) {
  const CallSite call(where);
  angles_of_a_head("rotate_backward", dt, positions, head_dim, base);
  return mapped("rotate_backward", std::move(dt), where);
}

void scatter_add_rows(const Tensor& rows, const Indices& at, Tensor& into, SourceLine where) {
  const CallSite call(where);
  note_elementwise("scatter_add_rows", rows.size());
  require_addends(rows, at, into);
}

Tensor losses_of_labels(const Tensor& largest, const Tensor& sums, const Tensor& of_labels,
                        const Indices& labels, ExponentialBase, SourceLine where) {
  const CallSite call(where);
  require_losses(largest, sums, of_labels, labels);
  return mapped("losses_of_labels", of_labels, where);
}

Tensor subtract_at_columns(Tensor&& t, const Indices& columns, const Tensor& values, SourceLine where) {
  const CallSite call(where);
  note_elementwise("subtract_at_columns", values.size());
  require_subtrahends(t, columns, values);
  return std::move(t);
}

void sgd_update(Rows w, const Tensor& g, float, SourceLine where) {
  update("sgd_update", w, g, where);
}
void integer_update(Rows w, const Tensor& g, SourceLine where) {
  update("integer_update", w, g, where);
}
void adam_update(Rows w, const Tensor& g, Tensor& m, Tensor& v, const AdamSettings&, Index,
                 SourceLine where) {
  update("adam_update", w, g, where);
  const CallSite call(where);
  require_moments(g, m, v);
}

}  // namespace shard
