#include "engine/device/runtime/operations/argument_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/device/books/memory.hpp"
#include "engine/device/runtime/operations/axis_cuts.hpp"

namespace shard {

Index bytes_of(const Shape& shape) {
  if (std::ranges::any_of(shape, [](Index extent) { return extent < 0; }))
    refuse(Code::argument, "Tensor", "extents of 0 or more", to_string(shape));
  if (std::ranges::find(shape, 0) != shape.end()) return 0;
  Index bytes = sizeof(float);
  for (Index extent : shape)
    if (__builtin_mul_overflow(bytes, extent, &bytes))
      refuse(Code::argument, "Tensor", "at most 2^63-1 bytes", to_string(shape));
  return bytes;
}

void require_inside(const char* call, const Tensor& t, Index first, std::span<const float> values) {
  const auto count = static_cast<Index>(values.size());
  if (first < 0 || first > t.size() || count > t.size() - first)
    refuse(Code::argument, call, fmt::format("elements of {}", t.size()),
           fmt::format("{} from {} on", count, first));
}

void require_values(const char* call, const Tensor& t, std::span<const float> values) {
  if (t.size() != static_cast<Index>(values.size()))
    refuse(Code::argument, call, std::to_string(t.size()) + " values for " + to_string(t.shape()),
           std::to_string(values.size()));
}

void require_same_shape(const char* call, const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape())
    refuse(Code::argument, call, "equal shapes", to_string(a.shape()) + " and " + to_string(b.shape()));
}

void require_shape(const char* call, const Shape& expected, const Tensor& given) {
  if (given.shape() != expected) refuse(Code::argument, call, to_string(expected), to_string(given.shape()));
}

namespace {

std::string describe(Operand o) {
  return to_string(o.shape()) + (o.is_transposed ? " transposed" : "");
}

}  // namespace

Shape Operand::shape() const {
  return columns_in_bf16 == 0 ? tensor->shape() : Shape{tensor->extent(0), columns_in_bf16};
}

Extents extents_of_product(Operand a, Operand b) {
  const int rank = a.tensor->rank();
  auto extent = [=](Operand o, int axis) {
    return o.shape()[static_cast<std::size_t>(rank - 2 + (o.is_transposed ? 1 - axis : axis))];
  };
  auto count = [=](Operand o) { return rank == 3 ? o.tensor->extent(0) : 1; };
  auto has_its_columns = [](Operand o) {
    const Index n = o.columns_in_bf16;
    return n == 0 || (o.tensor->rank() == 2 && o.tensor->extent(1) == columns_of_pairs(n));
  };
  if ((rank != 2 && rank != 3) || b.tensor->rank() != rank || !has_its_columns(a) || !has_its_columns(b) ||
      extent(a, 1) != extent(b, 0) || count(a) != count(b))
    refuse(Code::argument, "matmul", "matrices (m, k) and (k, n), or stacks of as many",
           describe(a) + " and " + describe(b));
  return {extent(a, 0), extent(a, 1), extent(b, 1), count(a)};
}

Shape shape_of_product(Operand a, Extents e) {
  return a.tensor->rank() == 3 ? Shape{e.count, e.m, e.n} : Shape{e.m, e.n};
}

Shape shape_of_slice(const char* call, const Tensor& t, int axis, Index begin, Index end) {
  runtime::require_axis(call, t.shape(), axis);
  if (begin < 0 || begin > end || end > t.extent(axis))
    refuse(Code::argument, call, "a range of axis " + std::to_string(axis) + " of " + to_string(t.shape()),
           "[" + std::to_string(begin) + ", " + std::to_string(end) + ")");
  return runtime::with_extent(t.shape(), axis, end - begin);
}

Shape shape_of_concatenation(std::span<const Tensor* const> parts, int axis) {
  if (parts.empty()) refuse(Code::argument, "concatenate", "at least one tensor", "none");
  const Shape& first = parts[0]->shape();
  runtime::require_axis("concatenate", first, axis);
  Index extent = 0;
  for (const Tensor* t : parts) {
    if (t->shape() != first &&
        (t->rank() != parts[0]->rank() || runtime::with_extent(t->shape(), axis, first[axis]) != first))
      refuse(Code::argument, "concatenate", "shapes equal but for axis " + std::to_string(axis),
             to_string(first) + " and " + to_string(t->shape()));
    extent += t->extent(axis);
  }
  return runtime::with_extent(first, axis, extent);
}

void require_matrix(const char* call, const Tensor& t) {
  if (t.rank() != 2) refuse(Code::argument, call, "a matrix", to_string(t.shape()));
}

void require_count(const char* call, const char* of_what, Index expected, Index given) {
  if (given != expected)
    refuse(Code::argument, call, std::to_string(expected) + " " + of_what, std::to_string(given));
}

namespace {

void require_index(const char* call, Index index, Index end) {
  if (index < 0 || index >= end)
    refuse(Code::argument, call, "indices from 0 to below " + std::to_string(end), std::to_string(index));
}

/// Without elements, indices come from a rule (choose_in_turn) and not from results, and are not read.
void require_indices(const char* call, std::span<const Index> indices, Index end) {
  if (!tensors_have_elements()) return;
  for (Index index : indices) require_index(call, index, end);
}

}  // namespace

void require_slots(const char* call, std::span<const Index> slots, Index end) {
  if (!tensors_have_elements()) return;
  for (Index slot : slots)
    if (slot != no_slot) require_index(call, slot, end);
}

Index count_of(std::span<const Index> indices) {
  return static_cast<Index>(indices.size());
}

namespace {

/// k slots for each of m rows.
Shape shape_of_combined(const Tensor& rows, std::span<const Index> slots, Index m, Index k) {
  require_count("combine_rows", "slots", m * k, count_of(slots));
  require_matrix("combine_rows", rows);
  require_slots("combine_rows", slots, rows.extent(0));
  return {m, rows.extent(1)};
}

}  // namespace

void require_row(const Tensor& t, std::span<const float> row) {
  require_matrix("add_to_rows", t);
  require_count("add_to_rows", "numbers", t.extent(1), static_cast<Index>(row.size()));
}

void require_columns(const Tensor& t, Index k) {
  require_matrix("top_k", t);
  if (k < 1 || k > t.extent(1))
    refuse(Code::argument, "top_k", "1 to " + std::to_string(t.extent(1)) + " columns", std::to_string(k));
}

Shape shape_of_taken(const Tensor& t, std::span<const Index> columns, Index k) {
  require_matrix("take_columns", t);
  require_count("take_columns", "columns", t.extent(0) * k, count_of(columns));
  require_slots("take_columns", columns, t.extent(1));
  return {t.extent(0), k};
}

Shape shape_of_put(const Tensor& values, std::span<const Index> columns, Index n) {
  require_matrix("put_columns", values);
  require_count("put_columns", "columns", values.size(), count_of(columns));
  require_indices("put_columns", columns, n);
  return {values.extent(0), n};
}

Shape shape_of_gathered(const Tensor& t, std::span<const Index> at) {
  require_matrix("gather_rows", t);
  require_indices("gather_rows", at, t.extent(0));
  return {count_of(at), t.extent(1)};
}

void require_places(const Tensor& rows, std::span<const Index> at, const Tensor& into) {
  require_matrix("scatter_rows", rows);
  require_matrix("scatter_rows", into);
  require_count("scatter_rows", "rows", count_of(at), rows.extent(0));
  require_count("scatter_rows", "columns", into.extent(1), rows.extent(1));
  require_indices("scatter_rows", at, into.extent(0));
}

void require_factors(const Tensor& rows, const Tensor& factors, std::span<const Index> at) {
  require_matrix("scale_rows", rows);
  require_count("scale_rows", "rows", count_of(at), rows.extent(0));
  require_indices("scale_rows", at, factors.size());
}

Shape shape_of_combined(const Tensor& rows, std::span<const Index> slots, const Tensor& weights) {
  require_matrix("combine_rows", weights);
  return shape_of_combined(rows, slots, weights.extent(0), weights.extent(1));
}

Shape shape_of_combined(const Tensor& rows, std::span<const Index> slots, Index k) {
  if (k < 1) refuse(Code::argument, "combine_rows", "at least 1 slot a row", std::to_string(k));
  return shape_of_combined(rows, slots, count_of(slots) / k, k);
}

Shape shape_of_dots(const Tensor& t, const Tensor& rows, std::span<const Index> slots, Index k) {
  require_matrix("dot_rows", t);
  require_matrix("dot_rows", rows);
  require_count("dot_rows", "columns", t.extent(1), rows.extent(1));
  require_count("dot_rows", "slots", t.extent(0) * k, count_of(slots));
  require_slots("dot_rows", slots, rows.extent(0));
  return {t.extent(0), k};
}

Range elements_to_update(const char* call, Rows rows, const Tensor& gradient) {
  if (gradient.shape() != rows.shape())
    refuse(Code::argument, call, "a gradient of shape " + to_string(rows.shape()),
           to_string(gradient.shape()));
  const Index per_row = rows.tensor->size() == 0 ? 0 : rows.tensor->size() / rows.tensor->extent(0);
  return {rows.begin * per_row, rows.end * per_row};
}

void require_moments(const Tensor& g, const Tensor& m, const Tensor& v) {
  if (m.shape() != g.shape() || v.shape() != g.shape())
    refuse(Code::argument, "adam_update", "moments of shape " + to_string(g.shape()),
           to_string(m.shape()) + " and " + to_string(v.shape()));
}

AdamStep adam_step(const AdamSettings& s, Index step) {
  auto t = static_cast<double>(step);
  return {static_cast<float>(s.rate / (1 - std::pow(static_cast<double>(s.beta1), t))),
          static_cast<float>(1 / std::sqrt(1 - std::pow(static_cast<double>(s.beta2), t)))};
}

}  // namespace shard
