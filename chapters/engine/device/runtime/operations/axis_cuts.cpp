#include "engine/device/runtime/operations/axis_cuts.hpp"

#include "engine/device/runtime/operations/tensor_memory.hpp"

namespace shard::runtime {

Shape with_extent(Shape shape, int axis, Index extent) {
  shape.at(static_cast<std::size_t>(axis)) = extent;
  return shape;
}

void require_axis(std::string_view call, const Shape& shape, int axis) {
  if (axis < 0 || axis >= static_cast<int>(shape.size()))
    refuse(Code::argument, call, "an axis of " + to_string(shape), "axis " + std::to_string(axis));
}

Index elements_before(const Shape& shape, int axis) {
  return num_elements(std::span(shape).first(static_cast<std::size_t>(axis)));
}
Index elements_after(const Shape& shape, int axis) {
  return num_elements(std::span(shape).subspan(static_cast<std::size_t>(axis) + 1));
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

Tensor room_for_slices(Index elements, int axis) {
  return axis == 0 ? TensorMemory::make({elements}) : TensorMemory::buffer(elements);
}

}  // namespace shard::runtime
