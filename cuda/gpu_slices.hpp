#pragma once

/// Copies of slices within the GPU's memory or to it, in a given stream.

#include <cuda_runtime.h>

#include "cuda/gpu_memory.hpp"
#include "engine/device/runtime/operations/axis_cuts.hpp"

namespace shard::cuda {

/// Copies `rows` pieces of `width` elements each. Distances are between the beginnings of consecutive pieces.
void copy_pieces(cudaStream_t stream, const float* from, Index from_distance, float* to, Index to_distance,
                 Index width, Index rows, cudaMemcpyKind kind = cudaMemcpyDeviceToDevice);
/// Copies this number of elements.
void copy(cudaStream_t stream, const float* from, float* to, Index elements);
/// Divides each element by a number (in kernels/elementwise.cpp).
void divide(cudaStream_t stream, float* values, Index elements, float divisor);
/// Copies the slice `range` along `axis` to contiguous memory, and back.
void copy_slice(cudaStream_t stream, const Tensor& from, int axis, Range range, float* to);
void paste_slice(cudaStream_t stream, const float* from, Tensor& to, int axis, Range range);

/// `packed` of collectives.hpp in a given stream, and its inverse, which makes a tensor of this shape from
/// contiguous slices.
Tensor packed_on(cudaStream_t stream, Tensor&& t, int axis, const std::vector<Range>& slices);
Tensor unpacked_on(cudaStream_t stream, Tensor&& row, Shape shape, int axis,
                   const std::vector<Range>& slices);

}  // namespace shard::cuda
