/// The operations, but for the matrix product and top_k: each checks its arguments, books its costs,
/// allocates its result, and lets the backend's kernel compute it.

#include <cmath>

#include "engine/device/layer_operations.hpp"
#include "engine/device/runtime/notes.hpp"
#include "engine/device/runtime/operations/kernels.hpp"
#include "engine/device/runtime/operations/layer_checks.hpp"
#include "engine/device/runtime/operations/tensor_memory.hpp"

namespace shard {

using runtime::Noted;

namespace {

/// An argument if it is a tensor, else null.
template <class Argument>
const Tensor* tensor_of(const Argument& a) {
  if constexpr (std::same_as<Argument, Tensor>) return &a;
  return nullptr;
}

/// A function of each element, in the tensor's memory.
template <class Kernel, class... Args>
Tensor in_place(const char* call, Tensor&& t, SourceLine where, Kernel kernel, const Args&... args) {
  const CallSite site(where);
  {
    const Noted noted(call, t.size(), {&t, tensor_of(args)...}, &t);
    if (t.size() > 0) kernel(t, args...);
  }
  return std::move(t);
}

/// A function of each element, in the tensor's memory or as a new tensor.
using Function = void (*)(const Tensor& z, Tensor& h);
Tensor mapped(const char* call, Tensor&& z, SourceLine where, Function kernel) {
  return in_place(call, std::move(z), where, [kernel](Tensor& t) { kernel(t, t); });
}
Tensor mapped(const char* call, const Tensor& z, SourceLine where, Function kernel) {
  const CallSite site(where);
  Tensor h = TensorMemory::make(z.shape());
  const Noted noted(call, z.size(), {&z}, &h);
  if (h.size() > 0) kernel(z, h);
  return h;
}

/// A function of the elements of two tensors of a shape, in the memory of the first.
template <class Kernel, class... Args>
Tensor combined(const char* call, Tensor&& a, const Tensor& b, SourceLine where, Kernel kernel,
                const Args&... args) {
  const CallSite site(where);
  require_same_shape(call, a, b);
  return in_place(call, std::move(a), where, kernel, b, args...);
}

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

Tensor to_bf16(const Tensor& matrix, SourceLine where) {
  const CallSite call(where);
  require_matrix("to_bf16", matrix);
  Tensor pairs = TensorMemory::make({matrix.extent(0), columns_of_pairs(matrix.extent(1))});
  const Noted noted("to_bf16", matrix.size(), {&matrix}, &pairs);
  if (pairs.size() > 0) kernels::to_bf16(matrix, pairs);
  return pairs;
}

Tensor sum_of_bf16(const Tensor& pairs, Index addends, Index n, SourceLine where) {
  const CallSite call(where);
  require_matrix("sum_of_bf16", pairs);
  if (addends < 1 || pairs.extent(0) % addends != 0 || pairs.extent(1) != columns_of_pairs(n))
    refuse(Code::argument, "sum_of_bf16", fmt::format("{} matrices of {} columns in pairs", addends, n),
           to_string(pairs.shape()));
  Tensor sums = TensorMemory::make({pairs.extent(0) / addends, n});
  const Noted noted("sum_of_bf16", pairs.size(), {&pairs}, &sums);
  if (sums.size() > 0) kernels::sum_of_bf16(pairs, sums);
  return sums;
}

Tensor relu(const Tensor& z, SourceLine where) {
  return mapped("relu", z, where, kernels::relu);
}
Tensor relu(Tensor&& z, SourceLine where) {
  return mapped("relu", std::move(z), where, kernels::relu);
}
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
Tensor scale(Tensor&& a, float factor, SourceLine where) {
  return in_place("scale", std::move(a), where, kernels::scale, factor);
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

Tensor relu_backward(Tensor&& dh, const Tensor& z, SourceLine where) {
  return combined("relu_backward", std::move(dh), z, where, kernels::relu_backward);
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
Tensor add(Tensor&& a, const Tensor& b, SourceLine where) {
  return combined("add", std::move(a), b, where, kernels::add);
}
Tensor subtract(Tensor&& a, const Tensor& b, SourceLine where) {
  return combined("subtract", std::move(a), b, where, kernels::subtract);
}
Tensor multiply(Tensor&& a, const Tensor& b, SourceLine where) {
  return combined("multiply", std::move(a), b, where, kernels::multiply);
}
Tensor scaled_difference(const Tensor& output, Tensor&& target, float factor, SourceLine where) {
  return combined("scaled_difference", std::move(target), output, where, kernels::scaled_difference, factor);
}

Later<double> sum_of_squares(const Tensor& t, SourceLine where) {
  const CallSite call(where);
  const Noted noted("sum_of_squares", t.size(), {&t}, nullptr);
  return kernels::sum_of_squares(t);
}
bool all_finite(const Tensor& t, SourceLine where) {
  const CallSite call(where);
  const Noted noted("all_finite", t.size(), {&t}, nullptr);
  return kernels::all_finite(t);
}

Tensor slice(const Tensor& t, int axis, Index begin, Index end, SourceLine where) {
  const CallSite call(where);
  Tensor part = TensorMemory::make(shape_of_slice("slice", t, axis, begin, end));
  const Noted noted("slice", part.size(), {&t}, &part);
  if (part.size() > 0) kernels::copy_slice(t, axis, {begin, end}, part);
  return part;
}
void assign(Rows rows, const Tensor& values, SourceLine where) {
  const CallSite call(where);
  const Noted noted("assign", values.size(), {&values, rows.tensor}, rows.tensor);
  require_shape("assign", rows.shape(), values);
  if (values.size() > 0) kernels::paste_slice(*rows.tensor, 0, {rows.begin, rows.end}, values);
}
Tensor concatenate(std::span<const Tensor* const> parts, int axis, SourceLine where) {
  const CallSite call(where);
  Tensor whole = TensorMemory::make(shape_of_concatenation(parts, axis));
  const Noted noted("concatenate", whole.size(), parts, &whole);
  Index begin = 0;
  for (const Tensor* t : parts) {
    const Range place = {begin, begin + t->extent(axis)};
    if (t->size() > 0) kernels::paste_slice(whole, axis, place, *t);
    begin = place.end;
  }
  return whole;
}

void sgd_update(Rows w, const Tensor& g, float rate, SourceLine where) {
  const CallSite call(where);
  const Noted noted("sgd_update", g.size(), {w.tensor, &g}, w.tensor);
  const Range elements = elements_to_update("sgd_update", w, g);
  if (g.size() > 0) kernels::sgd_update(*w.tensor, elements, g, rate);
}
void integer_update(Rows w, const Tensor& g, SourceLine where) {
  const CallSite call(where);
  const Noted noted("integer_update", g.size(), {w.tensor, &g}, w.tensor);
  const Range elements = elements_to_update("integer_update", w, g);
  if (g.size() > 0) kernels::integer_update(*w.tensor, elements, g);
}
void adam_update(Rows w, const Tensor& g, Tensor& m, Tensor& v, const AdamSettings& settings, Index step,
                 SourceLine where) {
  const CallSite call(where);
  const Noted noted("adam_update", g.size(), {w.tensor, &g, &m, &v}, w.tensor);
  const Range elements = elements_to_update("adam_update", w, g);
  require_moments(g, m, v);
  if (g.size() > 0) kernels::adam_update(*w.tensor, elements, g, m, v, settings, adam_step(settings, step));
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
Tensor add_to_rows(Tensor&& t, std::span<const float> row, SourceLine where) {
  const CallSite call(where);
  require_row(t, row);
  return in_place("add_to_rows", std::move(t), where, kernels::add_numbers_to_rows, row);
}
Tensor softmax(Tensor&& z, SourceLine where) {
  const CallSite call(where);
  require_matrix("softmax", z);
  return in_place("softmax", std::move(z), where, kernels::softmax);
}
Tensor softmax_backward(Tensor&& dp, const Tensor& p, SourceLine where) {
  const CallSite call(where);
  require_matrix("softmax_backward", p);
  return combined("softmax_backward", std::move(dp), p, where, kernels::softmax_backward);
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

Tensor take_columns(const Tensor& t, const Indices& columns, Index k, SourceLine where) {
  const CallSite call(where);
  Tensor taken = TensorMemory::make(shape_of_taken(t, columns, k));
  const Noted noted("take_columns", taken.size(), {&t}, &taken);
  if (taken.size() > 0) kernels::take_columns(t, columns, k, taken);
  return taken;
}
Tensor put_columns(const Tensor& values, const Indices& columns, Index n, SourceLine where) {
  const CallSite call(where);
  Tensor all(shape_of_put(values, columns, n));
  const Noted noted("put_columns", values.size(), {&values}, &all);
  if (values.size() > 0) kernels::put_columns(all, values, columns);
  return all;
}
Tensor gather_rows(const Tensor& t, const Indices& at, SourceLine where) {
  const CallSite call(where);
  Tensor rows = TensorMemory::make(shape_of_gathered(t, at));
  const Noted noted("gather_rows", rows.size(), {&t}, &rows);
  if (rows.size() > 0) kernels::gather_rows(t, at, rows);
  return rows;
}
void scatter_rows(const Tensor& rows, const Indices& at, Tensor& into, SourceLine where) {
  const CallSite call(where);
  const Noted noted("scatter_rows", rows.size(), {&rows, &into}, &into);
  require_places(rows, at, into);
  if (rows.size() > 0) kernels::scatter_rows(into, rows, at);
}
Tensor scale_rows(Tensor&& rows, const Tensor& factors, const Indices& at, SourceLine where) {
  const CallSite call(where);
  require_factors(rows, factors, at);
  return in_place("scale_rows", std::move(rows), where, kernels::scale_rows_at, factors, at);
}

namespace {

Tensor combined_rows(const Tensor& rows, const Indices& slots, const Shape& shape, const Tensor* weights,
                     Index k) {
  if (k == 0) return Tensor(shape);
  Tensor sums = TensorMemory::make(shape);
  const Noted noted("combine_rows", k * sums.size(), {&rows, weights}, &sums);
  if (sums.size() > 0) kernels::combine_rows(rows, slots, weights, k, sums);
  return sums;
}

}  // namespace

Tensor combine_rows(const Tensor& rows, const Indices& slots, const Tensor& weights, SourceLine where) {
  const CallSite call(where);
  return combined_rows(rows, slots, shape_of_combined(rows, slots, weights), &weights, weights.extent(1));
}
Tensor combine_rows(const Tensor& rows, const Indices& slots, Index k, SourceLine where) {
  const CallSite call(where);
  return combined_rows(rows, slots, shape_of_combined(rows, slots, k), nullptr, k);
}
Tensor dot_rows(const Tensor& t, const Tensor& rows, const Indices& slots, Index k, SourceLine where) {
  const CallSite call(where);
  Tensor dots = TensorMemory::make(shape_of_dots(t, rows, slots, k));
  const Noted noted("dot_rows", k * t.size(), {&t, &rows}, &dots);
  if (dots.size() > 0) kernels::dot_rows(t, rows, slots, k, dots);
  return dots;
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
