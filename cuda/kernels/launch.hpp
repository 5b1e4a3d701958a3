#pragma once

/// The one way in which kernels are launched: kernel(i, args...) for every i from 0 to below n.
///
/// A kernel is a struct whose operator() is marked SHARDBOOK_KERNEL. nvcc compiles it for the GPU; any other
/// compiler hands it to the runtime's headers, which then are those of the test double.

#include <cuda_runtime.h>

#include <algorithm>

#include "cuda/success.hpp"
#include "engine/device/split.hpp"

namespace shard::cuda {

#ifdef __CUDACC__

#define SHARDBOOK_KERNEL __device__

template <class Kernel, class... Args>
__global__ void for_each_index(Kernel kernel, Index n, Args... args) {
  const Index step = static_cast<Index>(gridDim.x) * blockDim.x;
  for (Index i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step)
    kernel(i, args...);
}

template <class Kernel, class... Args>
void launch_kernel(Kernel kernel, Index n, cudaStream_t stream, Args... args) {
  constexpr Index threads = 256;
  constexpr Index most_blocks = 8192;  // more than any GPU runs at a time; each thread then does several
  const auto blocks = static_cast<unsigned>(std::min((n + threads - 1) / threads, most_blocks));
  for_each_index<<<blocks, threads, 0, stream>>>(kernel, n, args...);
}

#else

#define SHARDBOOK_KERNEL

using cuda_double::launch_kernel;

#endif

template <class Kernel, class... Args>
void launch(Kernel kernel, Index n, cudaStream_t stream, Args... args) {
  if (n == 0) return;
  cudaGetLastError();  // forgotten: an error of an earlier call, which may have gone well the second time
  launch_kernel(kernel, n, stream, args...);
  SHARDBOOK_CHECK(cudaGetLastError());
}

}  // namespace shard::cuda
