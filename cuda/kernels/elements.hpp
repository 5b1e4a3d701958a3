#pragma once

/// What a kernel is: a struct whose operator() is marked SHARDBOOK_KERNEL. nvcc compiles it for the GPU. With any other
/// compiler, cuda_runtime.h is the test double's, which executes it on the CPU. This header needs nothing else, so that
/// programs without a device can launch kernels, too.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "engine/device/split.hpp"

namespace shard::cuda {

#ifdef __CUDACC__

#define SHARDBOOK_KERNEL __device__

constexpr int lanes = 32;  // of a warp

template <class Kernel, class... Args>
__global__ void for_each_index(Kernel kernel, Index n, Args... args) {
  const Index step = static_cast<Index>(gridDim.x) * blockDim.x;
  for (Index i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step)
    kernel(i, args...);
}

template <class Kernel, class... Args>
void launch_kernel(Kernel kernel, Index n, cudaStream_t stream, Args... args) {
  constexpr Index threads = 256;
  constexpr Index most_blocks = 8192;  // more than a GPU runs at a time: threads then loop
  const auto blocks = static_cast<unsigned>(std::min((n + threads - 1) / threads, most_blocks));
  for_each_index<<<blocks, threads, 0, stream>>>(kernel, n, args...);
}

#else

#define SHARDBOOK_KERNEL

using cuda_double::lanes;
using cuda_double::launch_kernel;

#endif

/// Four elements, which the GPU reads or writes at a time. Other arguments than tensors stay as they are.
struct alignas(16) Four {
  float elements[4];
};
template <class T>
struct FourOf {
  T given;
  SHARDBOOK_KERNEL FourOf(T argument, Index) : given(argument) {}
  SHARDBOOK_KERNEL T argument() const { return given; }
  SHARDBOOK_KERNEL void write() const {}
};
template <>
struct FourOf<const float*> {
  Four four;
  SHARDBOOK_KERNEL FourOf(const float* t, Index i) : four(reinterpret_cast<const Four*>(t)[i]) {}
  SHARDBOOK_KERNEL const float* argument() const { return four.elements; }
  SHARDBOOK_KERNEL void write() const {}
};
template <>
struct FourOf<float*> {
  Four* place;
  Four four = *place;
  SHARDBOOK_KERNEL FourOf(float* t, Index i) : place(reinterpret_cast<Four*>(t) + i) {}
  SHARDBOOK_KERNEL float* argument() { return four.elements; }
  SHARDBOOK_KERNEL void write() const { *place = four; }
};
template <>
struct FourOf<std::uint16_t*> {
  struct alignas(8) FourHalves {
    std::uint16_t elements[4];
  };
  FourHalves* place;
  FourHalves four = {};  // a kernel writes it, and reads none
  SHARDBOOK_KERNEL FourOf(std::uint16_t* t, Index i) : place(reinterpret_cast<FourHalves*>(t) + i) {}
  SHARDBOOK_KERNEL std::uint16_t* argument() { return four.elements; }
  SHARDBOOK_KERNEL void write() const { *place = four; }
};
template <class Kernel>
struct ByFours {
  Kernel kernel;

  template <class... Args>
  SHARDBOOK_KERNEL void operator()(Index i, Args... args) const {
    on(FourOf<Args>(args, i)...);
  }
  template <class... FourOfEach>
  SHARDBOOK_KERNEL void on(FourOfEach... t) const {
    for (Index i = 0; i < 4; ++i) kernel(i, t.argument()...);
    (t.write(), ...);
  }
};

}  // namespace shard::cuda
