#pragma once

#include <vector>

#include "engine/device/runtime/operations/axis_cuts.hpp"
#include "engine/device/runtime/operations/tensor_memory.hpp"

namespace shard::emu {

/// Copies the slice `range` along `axis` to contiguous memory, and back.
void copy_slice(const Tensor& from, int axis, Range range, float* to);
void paste_slice(const float* from, Tensor& to, int axis, Range range);

/// `packed` of collectives.hpp by the host, and its inverse, which makes a tensor of this shape.
Tensor packed(Tensor&& t, int axis, const std::vector<Range>& slices);
Tensor unpacked(Tensor&& row, Shape shape, int axis, const std::vector<Range>& slices);

}  // namespace shard::emu
