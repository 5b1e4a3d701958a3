#pragma once

/// A strict test double of those functions of the CUDA runtime that cuda/ uses, in host memory. NOT CUDA:
/// nothing that runs with it has run on a GPU.
///
/// At each call the double does launched work, in the order of streams and events. It has a vector clock for
/// each stream and for the host, and records the last write and the last reads of each allocation. It ends
/// the program when no stream or event orders an access behind an earlier one, even if the result would be
/// right. It also ends the program when the host reads or writes device memory, when the calls of two peers
/// do not match, and when something is not freed.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorDevicesUnavailable = 46,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNotReady = 600,
  cudaErrorLaunchFailure = 719
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };
enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_64F = 1, CUDA_R_16BF = 14 };
inline constexpr unsigned cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventDisableTiming = 2;

using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;

const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
struct cudaUUID_t {
  char bytes[16];
};
struct cudaDeviceProp {
  char name[256];
  cudaUUID_t uuid;
};
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
enum cudaDeviceAttr {
  cudaDevAttrClockRate = 13,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76
};
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaMalloc(void** data, std::size_t bytes);
cudaError_t cudaFree(void* data);
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* all);
cudaError_t cudaMallocHost(void** data, std::size_t bytes);
cudaError_t cudaFreeHost(void* data);
cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);

namespace cuda_double {

/// An access to memory by launched work.
struct Access {
  const void* data;
  std::size_t bytes;
  bool is_write;
};

/// Launches work in a stream. The double calls it repeatedly until it returns true.
cudaError_t add_work(cudaStream_t stream, const char* what, const std::vector<Access>& accesses,
                     std::function<bool()> work);

/// The double's own address of memory that has this address in the program.
void* kept_at(const void* device_address);

template <class T>
void note_access(std::vector<Access>& accesses, const T& argument) {
  if constexpr (std::is_pointer_v<T>)
    accesses.push_back({argument, 1, !std::is_const_v<std::remove_pointer_t<T>>});
}
template <class T>
T as_kept(T argument) {
  if constexpr (std::is_pointer_v<T>)
    return static_cast<T>(kept_at(argument));
  else
    return argument;
}

/// The error planted for this call, or 0.
int planted(const char* call);

/// At a kernel's first launch. Unless CUDA_MODULE_LOADING is EAGER, the driver may wait for all streams then.
void load_kernel();

/// The threads of a warp. With 32, as a GPU has, the double is slow: see cuda_double_as_gpu in tests/CMakeLists.txt.
#ifndef CUDA_DOUBLE_LANES
#define CUDA_DOUBLE_LANES 1
#endif
inline constexpr int lanes = CUDA_DOUBLE_LANES;

/// Runs body(lane) for the lanes of a team, which come to each exchange together. Ends the program if one does not.
void run_team(int lanes, const std::function<void(int lane)>& body);
/// Within run_team: gives 8 bytes to the other lanes, and returns those of one. All lanes call it.
std::uint64_t exchanged(std::uint64_t mine, int other);

/// Launches kernel(i, args...) for i from 0 to below n. Pointers among the arguments point to device memory.
/// The kernel reads through pointers to const and writes through the others. An error is CUDA's last error.
template <class Kernel, class... Args>
void launch_kernel(Kernel kernel, std::int64_t n, cudaStream_t stream, Args... args) {
  if (planted("cudaLaunchKernel") != 0) return;
  static bool is_loaded = false;
  if (!std::exchange(is_loaded, true)) load_kernel();
  std::vector<Access> accesses;
  (note_access(accesses, args), ...);
  add_work(stream, "a kernel", accesses, [=] {
    if constexpr (requires { typename Kernel::InTeams; }) {
      constexpr int size = Kernel::InTeams::size;
      for (std::int64_t i = 0; size > 1 && i < n; i += size)
        run_team(size, [&](int lane) { kernel(i + lane, as_kept(args)...); });
      if (size > 1) return true;
    }
    for (std::int64_t i = 0; i < n; ++i) kernel(i, as_kept(args)...);
    return true;
  });
}

inline constexpr int left_out = -1;
/// For tests. Makes the k-th call of this function from now on fail with this error, or leaves it out. With
/// k = 0 it is the next call. As with CUDA, cudaErrorLaunchFailure breaks the GPU: every later call fails, too.
void plant(const char* call, int k, int error);
/// The bytes of the GPU's memory. A test can make them few.
extern std::size_t memory_of_gpu;

}  // namespace cuda_double

/// The number of the thread that runs.
struct ThreadIndex {
  unsigned x = 0;
};
extern ThreadIndex threadIdx;

template <class T>
T __shfl_xor_sync(unsigned, T mine, int far) {
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, &mine, sizeof mine);
  bytes = cuda_double::exchanged(bytes, static_cast<int>(threadIdx.x) ^ far);
  std::memcpy(&mine, &bytes, sizeof mine);
  return mine;
}

/// A product that the compiler does not fuse with a sum.
inline float __fmul_rn(float a, float b) {
  const volatile float product = a * b;
  return product;
}
