#include "emu/slice_copies.hpp"

#include <algorithm>

namespace shard::emu {

using runtime::elements_after;
using runtime::elements_before;

void copy_slice(const Tensor& from, int axis, Range range, float* to) {
  Index inner = elements_after(from.shape(), axis);
  Index stride = from.extent(axis) * inner;
  const float* first = TensorMemory::span(from).data() + range.begin * inner;
  for (Index o = 0; o < elements_before(from.shape(), axis); ++o)
    to = std::copy_n(first + o * stride, range.size() * inner, to);
}

void paste_slice(const float* from, Tensor& to, int axis, Range range) {
  Index inner = elements_after(to.shape(), axis);
  Index stride = to.extent(axis) * inner;
  float* first = TensorMemory::span(to).data() + range.begin * inner;
  for (Index o = 0; o < elements_before(to.shape(), axis); ++o, from += range.size() * inner)
    std::copy_n(from, range.size() * inner, first + o * stride);
}

Tensor unpacked(Tensor&& row, Shape shape, int axis, const std::vector<Range>& slices) {
  if (axis == 0) return std::move(row).reshaped(std::move(shape));
  Tensor t = TensorMemory::make(std::move(shape));
  const float* from = TensorMemory::span(std::as_const(row)).data();
  Index slice_of_one = t.extent(axis) == 0 ? 0 : t.size() / t.extent(axis);
  for (const Range& r : slices) {
    paste_slice(from, t, axis, r);
    from += r.size() * slice_of_one;
  }
  row = Tensor();
  return t;
}

Tensor packed(Tensor&& t, int axis, const std::vector<Range>& slices) {
  if (axis == 0) return std::move(t);
  Tensor row = TensorMemory::buffer(t.size());
  float* to = TensorMemory::span(row).data();
  Index slice_of_one = t.extent(axis) == 0 ? 0 : t.size() / t.extent(axis);
  for (const Range& r : slices) {
    copy_slice(t, axis, r, to);
    to += r.size() * slice_of_one;
  }
  t = Tensor();
  return row;
}

}  // namespace shard::emu
