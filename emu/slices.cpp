#include "emu/slices.hpp"

#include <algorithm>

namespace shard::emu {

namespace {

/// Elements in all axes before `axis`, and in all axes after it.
Index elements_before(const Shape& shape, int axis) {
  return num_elements({shape.begin(), shape.begin() + axis});
}
Index elements_after(const Shape& shape, int axis) {
  return num_elements({shape.begin() + axis + 1, shape.end()});
}

}  // namespace

Shape with_extent(Shape shape, int axis, Index extent) {
  shape.at(static_cast<std::size_t>(axis)) = extent;
  return shape;
}

void require_axis(const char* call, const Shape& shape, int axis) {
  if (axis < 0 || axis >= static_cast<int>(shape.size()))
    refuse(Code::argument, call, "an axis of " + to_string(shape), "axis " + std::to_string(axis));
}

void copy_slice(const Tensor& from, int axis, Range range, float* to) {
  Index inner = elements_after(from.shape(), axis);
  Index stride = from.extent(axis) * inner;
  const float* first = Backend::data(from) + range.begin * inner;
  for (Index o = 0; o < elements_before(from.shape(), axis); ++o)
    to = std::copy_n(first + o * stride, range.size() * inner, to);
}

void paste_slice(const float* from, Tensor& to, int axis, Range range) {
  Index inner = elements_after(to.shape(), axis);
  Index stride = to.extent(axis) * inner;
  float* first = Backend::data(to) + range.begin * inner;
  for (Index o = 0; o < elements_before(to.shape(), axis); ++o, from += range.size() * inner)
    std::copy_n(from, range.size() * inner, first + o * stride);
}

std::vector<Range> cut(Index extent, int parts) {
  std::vector<Range> ranges;
  for (int k = 0; k < parts; ++k) ranges.push_back(part(extent, parts, k));
  return ranges;
}

std::vector<Range> cut(const std::vector<Index>& sizes) {
  std::vector<Range> ranges;
  Index begin = 0;
  for (Index size : sizes) {
    ranges.push_back({begin, begin + size});
    begin += size;
  }
  return ranges;
}

Tensor packed(Tensor&& t, int axis, const std::vector<Range>& slices) {
  if (axis == 0) return std::move(t);
  Tensor row = Backend::buffer(t.size());
  float* to = Backend::data(row);
  Index slice_of_one = t.extent(axis) == 0 ? 0 : t.size() / t.extent(axis);
  for (const Range& r : slices) {
    copy_slice(t, axis, r, to);
    to += r.size() * slice_of_one;
  }
  t = Tensor();
  return row;
}

Tensor unpacked(Tensor&& row, Shape shape, int axis, const std::vector<Range>& slices) {
  if (axis == 0) return std::move(row).reshaped(std::move(shape));
  Tensor t = Backend::make(std::move(shape));
  const float* from = Backend::data(row);
  Index slice_of_one = t.extent(axis) == 0 ? 0 : t.size() / t.extent(axis);
  for (const Range& r : slices) {
    paste_slice(from, t, axis, r);
    from += r.size() * slice_of_one;
  }
  row = Tensor();
  return t;
}

}  // namespace shard::emu
