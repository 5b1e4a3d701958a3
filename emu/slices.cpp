#include "emu/slices.hpp"

#include <algorithm>

#include "backend/collectives.hpp"

namespace shard::emu {

using backend::elements_after;
using backend::elements_before;

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

namespace shard::backend {

Tensor packed(Tensor&& t, int axis, const std::vector<Range>& slices) {
  if (axis == 0) return std::move(t);
  Tensor row = Backend::buffer(t.size());
  float* to = Backend::data(row);
  Index slice_of_one = t.extent(axis) == 0 ? 0 : t.size() / t.extent(axis);
  for (const Range& r : slices) {
    emu::copy_slice(t, axis, r, to);
    to += r.size() * slice_of_one;
  }
  t = Tensor();
  return row;
}

}  // namespace shard::backend
