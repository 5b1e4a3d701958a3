#include "backend/checks.hpp"

#include <cmath>

#include "backend/slices.hpp"

namespace shard {

void require_same_shape(const char* call, const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape())
    refuse(Code::argument, call, "equal shapes", to_string(a.shape()) + " and " + to_string(b.shape()));
}

void require_shape(const char* call, const Shape& expected, const Tensor& given) {
  if (given.shape() != expected) refuse(Code::argument, call, to_string(expected), to_string(given.shape()));
}

namespace {

std::string describe(Operand o) {
  return to_string(o.tensor->shape()) + (o.is_transposed ? " transposed" : "");
}

}  // namespace

Extents extents_of_product(Operand a, Operand b) {
  auto extent = [](Operand o, int axis) { return o.tensor->extent(o.is_transposed ? 1 - axis : axis); };
  if (a.tensor->rank() != 2 || b.tensor->rank() != 2 || extent(a, 1) != extent(b, 0))
    refuse(Code::argument, "matmul", "matrices (m, k) and (k, n)", describe(a) + " and " + describe(b));
  return {extent(a, 0), extent(a, 1), extent(b, 1)};
}

Shape shape_of_slice(const Tensor& t, int axis, Index begin, Index end) {
  backend::require_axis("slice", t.shape(), axis);
  if (begin < 0 || begin > end || end > t.extent(axis))
    refuse(Code::argument, "slice", "a range of axis " + std::to_string(axis) + " of " + to_string(t.shape()),
           "[" + std::to_string(begin) + ", " + std::to_string(end) + ")");
  return backend::with_extent(t.shape(), axis, end - begin);
}

Shape shape_of_concatenation(std::span<const Tensor* const> parts, int axis) {
  if (parts.empty()) refuse(Code::argument, "concatenate", "at least one tensor", "none");
  const Shape& first = parts[0]->shape();
  backend::require_axis("concatenate", first, axis);
  Index extent = 0;
  for (const Tensor* t : parts) {
    if (t->rank() != parts[0]->rank() ||
        backend::with_extent(t->shape(), axis, 0) != backend::with_extent(first, axis, 0))
      refuse(Code::argument, "concatenate", "shapes equal but for axis " + std::to_string(axis),
             to_string(first) + " and " + to_string(t->shape()));
    extent += t->extent(axis);
  }
  return backend::with_extent(first, axis, extent);
}

void require_matrix(const char* call, const Tensor& t) {
  if (t.rank() != 2) refuse(Code::argument, call, "a matrix", to_string(t.shape()));
}

void require_count(const char* call, const char* of_what, Index expected, Index given) {
  if (given != expected)
    refuse(Code::argument, call, std::to_string(expected) + " " + of_what, std::to_string(given));
}

void require_index(const char* call, Index index, Index end) {
  if (index < 0 || index >= end)
    refuse(Code::argument, call, "indices from 0 to below " + std::to_string(end), std::to_string(index));
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
