#pragma once

#include <vector>

#include "emu/operations/host_memory.hpp"
#include "engine/device/runtime/operations/axis_cuts.hpp"

namespace shard::emu {

/// Copies elements `range` along `axis` to contiguous memory, and back.
void copy_slice(const Tensor& from, int axis, Range range, float* to);
void paste_slice(const float* from, Tensor& to, int axis, Range range);

/// The reverse of `packed`: slices one behind the other become a tensor of this shape.
Tensor unpacked(Tensor&& slices_in_a_row, Shape shape, int axis, const std::vector<Range>& slices);

}  // namespace shard::emu
