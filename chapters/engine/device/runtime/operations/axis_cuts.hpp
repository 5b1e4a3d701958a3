#pragma once

/// Shapes, axes, and the slices along an axis.

#include <vector>

#include "engine/device/device.hpp"

namespace shard::runtime {

/// The shape with one extent replaced.
Shape with_extent(Shape shape, int axis, Index extent);
/// \throws Error argument unless the shape has that axis.
void require_axis(std::string_view call, const Shape& shape, int axis);
/// The product of the extents before `axis`, and after it.
Index elements_before(const Shape& shape, int axis);
Index elements_after(const Shape& shape, int axis);

/// Cuts an axis into `parts` by the rule of split.hpp, or into the given sizes.
std::vector<Range> cut(Index extent, int parts);
std::vector<Range> cut(const std::vector<Index>& sizes);

/// Memory for concatenated slices. Along axis 0 it becomes the result; otherwise it is a buffer.
Tensor room_for_slices(Index elements, int axis);

}  // namespace shard::runtime
