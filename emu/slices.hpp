#pragma once

#include <vector>

#include "emu/memory.hpp"

namespace shard::emu {

/// The shape with one extent replaced.
Shape with_extent(Shape shape, int axis, Index extent);
/// \throws Error argument unless the tensor has that axis.
void require_axis(const char* call, const Shape& shape, int axis);

/// Copies elements `range` along `axis` to contiguous memory, and back.
void copy_slice(const Tensor& from, int axis, Range range, float* to);
void paste_slice(const float* from, Tensor& to, int axis, Range range);

/// Cuts an axis into `parts` by the rule of split.hpp, or into the given sizes.
std::vector<Range> cut(Index extent, int parts);
std::vector<Range> cut(const std::vector<Index>& sizes);

/// The slices one behind the other in memory, so that each can be sent as it lies. Along axis 0 they lie so
/// already and the tensor itself is returned; otherwise the copy is a buffer.
Tensor packed(Tensor&& t, int axis, const std::vector<Range>& slices);
/// The reverse: slices one behind the other become a tensor of this shape.
Tensor unpacked(Tensor&& slices_in_a_row, Shape shape, int axis, const std::vector<Range>& slices);

}  // namespace shard::emu
