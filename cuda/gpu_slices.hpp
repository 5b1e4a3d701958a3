#pragma once

/// Slices of tensors, copied within the GPU's memory by whichever queue.

#include <cuda_runtime.h>

#include "cuda/gpu_memory.hpp"
#include "engine/device/runtime/axis_cuts.hpp"

namespace shard::cuda {

/// So many elements.
void copy(cudaStream_t queue, const float* from, float* to, Index elements);
/// Each of so many elements by a number (in operations.cpp, with the kernels).
void divide(cudaStream_t queue, float* values, Index elements, float divisor);
/// Copies elements `range` along `axis` to contiguous memory, and back.
void copy_slice(cudaStream_t queue, const Tensor& from, int axis, Range range, float* to);
void paste_slice(cudaStream_t queue, const float* from, Tensor& to, int axis, Range range);

/// What collective_bodies.hpp says of `packed`, and the reverse: slices one behind the other become a
/// tensor of this shape.
Tensor packed_on(cudaStream_t queue, Tensor&& t, int axis, const std::vector<Range>& slices);
Tensor unpacked_on(cudaStream_t queue, Tensor&& row, Shape shape, int axis, const std::vector<Range>& slices);

}  // namespace shard::cuda
