/// The operations of operations.hpp, but for the matrix product and top_k: each checks its arguments, books its
/// costs, allocates its result, and lets the backend's kernel compute it.

#include "engine/device/operations.hpp"

#include "engine/device/runtime/operations/element_functions.hpp"
#include "engine/device/runtime/operations/kernels.hpp"

namespace shard {

using runtime::combined;
using runtime::in_place;
using runtime::mapped;
using runtime::Noted;

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
Tensor scale(Tensor&& a, float factor, SourceLine where) {
  return in_place("scale", std::move(a), where, kernels::scale, factor);
}

Tensor relu_backward(Tensor&& dh, const Tensor& z, SourceLine where) {
  return combined("relu_backward", std::move(dh), z, where, kernels::relu_backward);
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

}  // namespace shard
