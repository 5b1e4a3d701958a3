#pragma once

#include <vector>

#include "emu/operations/host_memory.hpp"
#include "engine/device/runtime/operations/axis_cuts.hpp"

namespace shard::emu {

/// Copies the slice `range` along `axis` to contiguous memory, and back.
void copy_slice(const Tensor& from, int axis, Range range, float* to);
void paste_slice(const float* from, Tensor& to, int axis, Range range);

/// The inverse of `packed`: makes a tensor of this shape from contiguous slices.
Tensor unpacked(Tensor&& row, Shape shape, int axis, const std::vector<Range>& slices);

}  // namespace shard::emu
