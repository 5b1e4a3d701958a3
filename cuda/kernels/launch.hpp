#pragma once

/// Launches kernels: kernel(i, args...) for every i from 0 to n - 1, or kernel(team, row, args...) for every row, which
/// the threads of a team compute together.

#include <type_traits>

#include "cuda/gpu.hpp"
#include "cuda/kernels/elements.hpp"
#include "cuda/success.hpp"

namespace shard::cuda {

/// A warp. Its threads read neighbouring elements at a time, which memory serves together.
struct Team {
  static constexpr int size = lanes;
  int lane = static_cast<int>(threadIdx.x) % size;

  /// The sum of the threads' numbers, and the largest of them, on each thread.
  template <class T>
  SHARDBOOK_KERNEL T sum(T x) const {
    for (int far = size / 2; far > 0; far /= 2) x += __shfl_xor_sync(~0U, x, far);
    return x;
  }
  template <class T>
  SHARDBOOK_KERNEL T max(T x) const {
    for (int far = size / 2; far > 0; far /= 2) {
      const T other = __shfl_xor_sync(~0U, x, far);
      x = other > x ? other : x;
    }
    return x;
  }
};

/// Index i stands for a thread of a row's team.
template <class Kernel>
struct OfRows {
  using InTeams = Team;
  Kernel kernel;

  template <class... Args>
  SHARDBOOK_KERNEL void operator()(Index i, Args... args) const {
    kernel(Team(), i / Team::size, args...);
  }
};

template <class Kernel, class... Args>
void launch(Kernel kernel, Index n, cudaStream_t stream, Args... args) {
  if (n == 0) return;
  stay_below_full_queue();
  cudaGetLastError();  // discards an earlier call's error, which has been handled
  launch_kernel(kernel, n, stream, args...);
  SHARDBOOK_CHECK(cudaGetLastError());
}

/// Whether an argument is no tensor, or lies where the GPU reads four elements at a time.
template <class T>
bool has_fours(T argument) {
  if constexpr (std::is_pointer_v<T>)
    return reinterpret_cast<std::uintptr_t>(argument) % sizeof(Four) == 0;
  else
    return true;
}

/// For a kernel whose index i stands for element i of each tensor, and for nothing else.
template <class Kernel, class... Args>
void launch_elements(Kernel kernel, Index n, cudaStream_t stream, Args... args) {
  if (n % 4 == 0 && (has_fours(args) && ...))
    launch(ByFours<Kernel>{kernel}, n / 4, stream, args...);
  else
    launch(kernel, n, stream, args...);
}

template <class Kernel, class... Args>
void launch_rows(Kernel kernel, Index rows, cudaStream_t stream, Args... args) {
  launch(OfRows<Kernel>{kernel}, rows * Team::size, stream, args...);
}

}  // namespace shard::cuda
