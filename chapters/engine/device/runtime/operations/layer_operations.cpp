/// The operations of layer_operations.hpp, which layers need.

#include "engine/device/layer_operations.hpp"

#include <cmath>

#include "engine/device/runtime/operations/element_functions.hpp"
#include "engine/device/runtime/operations/kernels.hpp"

namespace shard {

using runtime::combined;
using runtime::in_place;
using runtime::mapped;
using runtime::Noted;

namespace {

/// A function of each element and of its row's, or its column's, number.
template <class Kernel, class... Args>
Tensor with_rows(const char* call, Tensor&& t, const Tensor& numbers, SourceLine where, Kernel kernel,
                 const Args&... args) {
  const CallSite site(where);
  require_one_for_each_row(call, t, numbers);
  return in_place(call, std::move(t), where, kernel, numbers, args...);
}
template <class Kernel>
Tensor with_columns(const char* call, Tensor&& t, const Tensor& numbers, SourceLine where, Kernel kernel) {
  const CallSite site(where);
  require_one_for_each_column(call, t, numbers);
  return in_place(call, std::move(t), where, kernel, numbers);
}

/// Reduces one matrix, or two of one shape, to a number for each index of an axis.
template <class Kernel, class... More>
Tensor folded(const char* call, int axis, SourceLine where, Kernel kernel, const Tensor& t,
              const More&... more) {
  const CallSite site(where);
  require_matrix(call, t);
  (require_same_shape(call, t, more), ...);
  Tensor numbers = TensorMemory::make({t.extent(axis)});
  const Noted noted(call, t.size(), {&t, &more...}, &numbers);
  if (numbers.size() > 0) kernel(t, more..., numbers);
  return numbers;
}

}  // namespace

Tensor silu(const Tensor& z, SourceLine where) {
  return mapped("silu", z, where, kernels::silu);
}
Tensor silu(Tensor&& z, SourceLine where) {
  return mapped("silu", std::move(z), where, kernels::silu);
}
Tensor gelu(const Tensor& z, SourceLine where) {
  return mapped("gelu", z, where, kernels::gelu);
}
Tensor gelu(Tensor&& z, SourceLine where) {
  return mapped("gelu", std::move(z), where, kernels::gelu);
}
Tensor sigmoid(Tensor&& z, SourceLine where) {
  return in_place("sigmoid", std::move(z), where, kernels::sigmoid);
}
Tensor hyperbolic_tangent(Tensor&& z, SourceLine where) {
  return in_place("hyperbolic_tangent", std::move(z), where, kernels::hyperbolic_tangent);
}
Tensor inverse_root(Tensor&& t, float factor, float epsilon, SourceLine where) {
  return in_place("inverse_root", std::move(t), where, kernels::inverse_root, factor, epsilon);
}
Tensor round_to(Tensor&& t, float unit, SourceLine where) {
  return round_to(std::move(t), unit, HUGE_VALF, where);
}
Tensor round_to(Tensor&& t, float unit, float limit, SourceLine where) {
  const CallSite call(where);
  require_unit(unit, limit);
  if (unit == 0 && limit == HUGE_VALF) return std::move(t);
  return in_place("round_to", std::move(t), where, kernels::round_to, unit, limit);
}
Tensor sigmoid_backward(Tensor&& dh, const Tensor& h, SourceLine where) {
  return combined("sigmoid_backward", std::move(dh), h, where, kernels::sigmoid_backward);
}
Tensor hyperbolic_tangent_backward(Tensor&& dh, const Tensor& h, SourceLine where) {
  return combined("hyperbolic_tangent_backward", std::move(dh), h, where,
                  kernels::hyperbolic_tangent_backward);
}
Tensor silu_backward(Tensor&& dh, const Tensor& z, SourceLine where) {
  return combined("silu_backward", std::move(dh), z, where, kernels::silu_backward);
}
Tensor gelu_backward(Tensor&& dh, const Tensor& z, SourceLine where) {
  return combined("gelu_backward", std::move(dh), z, where, kernels::gelu_backward);
}

Tensor row_sums(const Tensor& t, SourceLine where) {
  return folded("row_sums", 0, where, kernels::row_sums, t);
}
Tensor row_dots(const Tensor& a, const Tensor& b, SourceLine where) {
  return folded("row_dots", 0, where, kernels::row_dots, a, b);
}
Tensor row_max(const Tensor& t, SourceLine where) {
  return folded("row_max", 0, where, kernels::row_max, t);
}
Tensor column_sums(const Tensor& t, SourceLine where) {
  return folded("column_sums", 1, where, kernels::column_sums, t);
}
Tensor column_dots(const Tensor& a, const Tensor& b, SourceLine where) {
  return folded("column_dots", 1, where, kernels::column_dots, a, b);
}
Tensor scale_rows(Tensor&& t, const Tensor& factors, SourceLine where) {
  return with_rows("scale_rows", std::move(t), factors, where, kernels::scale_rows);
}
Tensor divide_rows(Tensor&& t, const Tensor& divisors, SourceLine where) {
  return with_rows("divide_rows", std::move(t), divisors, where, kernels::divide_rows);
}
Tensor add_to_columns(Tensor&& t, const Tensor& column, SourceLine where) {
  return with_rows("add_to_columns", std::move(t), column, where, kernels::add_to_columns);
}
Tensor exponentials(Tensor&& z, const Tensor& largest, ExponentialBase base, SourceLine where) {
  return with_rows("exponentials", std::move(z), largest, where, kernels::exponentials, base);
}
Tensor scale_columns(Tensor&& t, const Tensor& factors, SourceLine where) {
  return with_columns("scale_columns", std::move(t), factors, where, kernels::scale_columns);
}
Tensor add_to_rows(Tensor&& t, const Tensor& row, SourceLine where) {
  return with_columns("add_to_rows", std::move(t), row, where, kernels::add_to_rows);
}

ScorePowers powers_of_scores(Tensor&& scores, const ScoreRule& rule, const Tensor* at_least,
                             SourceLine where) {
  const CallSite call(where);
  const Index rows = rows_of_scores("powers_of_scores", scores, {at_least});
  Tensor largest = TensorMemory::make({rows}), sums = TensorMemory::make({rows});
  {
    const Noted noted("powers_of_scores", scores.size(), {&scores, at_least}, &scores);
    if (rows > 0) kernels::powers_of_scores(scores, rule, at_least, largest, sums);
  }
  return {std::move(scores), std::move(largest), std::move(sums)};
}
Tensor softmax_of_scores(Tensor&& scores, const ScoreRule& rule, const Tensor& largest, const Tensor& sums,
                         SourceLine where) {
  const CallSite call(where);
  rows_of_scores("softmax_of_scores", scores, {&largest, &sums});
  return in_place("softmax_of_scores", std::move(scores), where, kernels::softmax_of_scores, rule, largest,
                  sums);
}
Tensor softmax_of_scores_backward(Tensor&& dp, const Tensor& p, const Tensor& dots, float factor,
                                  SourceLine where) {
  const CallSite call(where);
  require_same_shape("softmax_of_scores_backward", dp, p);
  rows_of_scores("softmax_of_scores_backward", p, {&dots});
  return in_place("softmax_of_scores_backward", std::move(dp), where, kernels::softmax_of_scores_backward, p,
                  dots, factor);
}
Tensor stack_heads(const Tensor& t, const HeadBlock& block, SourceLine where) {
  const CallSite call(where);
  Tensor stack = TensorMemory::make(shape_of_heads("stack_heads", t, block));
  const Noted noted("stack_heads", stack.size(), {&t}, &stack);
  if (stack.size() > 0) kernels::stack_heads(t, block, stack);
  return stack;
}
void add_heads(const Tensor& stack, const HeadBlock& block, Tensor& into, SourceLine where) {
  const CallSite call(where);
  const Noted noted("add_heads", stack.size(), {&into, &stack}, &into);
  require_shape("add_heads", shape_of_heads("add_heads", into, block), stack);
  if (stack.size() > 0) kernels::add_heads(into, block, stack);
}
Tensor rotate(Tensor&& t, std::span<const Index> positions, Index head_dim, double base, SourceLine where) {
  const CallSite call(where);
  const std::vector<double> angles = angles_of_a_head("rotate", t, positions, head_dim, base);
  return in_place("rotate", std::move(t), where, kernels::rotate, positions, angles, 1.0);
}
Tensor rotate_backward(Tensor&& dt, std::span<const Index> positions, Index head_dim, double base,
                       SourceLine where) {
  const CallSite call(where);
  const std::vector<double> angles = angles_of_a_head("rotate_backward", dt, positions, head_dim, base);
  return in_place("rotate_backward", std::move(dt), where, kernels::rotate, positions, angles, -1.0);
}
void scatter_add_rows(const Tensor& rows, const Indices& at, Tensor& into, SourceLine where) {
  const CallSite call(where);
  const Noted noted("scatter_add_rows", rows.size(), {&rows, &into}, &into);
  require_addends(rows, at, into);
  if (rows.size() > 0 && into.size() > 0) kernels::scatter_add_rows(into, rows, at);
}
Tensor losses_of_labels(const Tensor& largest, const Tensor& sums, const Tensor& of_labels,
                        const Indices& labels, ExponentialBase base, SourceLine where) {
  const CallSite call(where);
  require_losses(largest, sums, of_labels, labels);
  Tensor losses = TensorMemory::make(of_labels.shape());
  const Noted noted("losses_of_labels", of_labels.size(), {&largest, &sums, &of_labels}, &losses);
  if (losses.size() > 0) kernels::losses_of_labels(largest, sums, of_labels, labels, base, losses);
  return losses;
}
Tensor subtract_at_columns(Tensor&& t, const Indices& columns, const Tensor& values, SourceLine where) {
  const CallSite call(where);
  require_subtrahends(t, columns, values);
  {
    const Noted noted("subtract_at_columns", values.size(), {&t, &values}, &t);
    if (values.size() > 0 && t.size() > 0) kernels::subtract_at_columns(t, columns, values);
  }
  return std::move(t);
}

}  // namespace shard
