#pragma once

/// Shapes and axes, cut into slices.

#include <vector>

#include "engine/device/device.hpp"

namespace shard::runtime {

/// The shape with one extent replaced.
Shape with_extent(Shape shape, int axis, Index extent);
/// \throws Error argument unless the tensor has that axis.
void require_axis(std::string_view call, const Shape& shape, int axis);
/// Elements in all axes before `axis`, and in all axes after it.
Index elements_before(const Shape& shape, int axis);
Index elements_after(const Shape& shape, int axis);

/// Cuts an axis into `parts` by the rule of split.hpp, or into the given sizes.
std::vector<Range> cut(Index extent, int parts);
std::vector<Range> cut(const std::vector<Index>& sizes);

/// Memory for slices along an axis, one behind the other. It is a buffer, unless that is how they stay.
Tensor room_for_slices(Index elements, int axis);

}  // namespace shard::runtime
