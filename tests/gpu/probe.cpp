/// Questions about CUDA and NCCL that only a GPU can answer: each is a run of its own, since its answer may be that
/// a call never returns. What cuda/ assumes is printed beside what is seen.
///
///     probe errors | waits | streams | costs | rates | nccl

#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <nccl.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cuda/kernels/adam.hpp"
#include "cuda/kernels/rounding.hpp"

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void require(bool is_right, const char* what) {
  if (is_right) return;
  std::printf("error: expected success of %s\n", what);
  std::exit(1);
}
#define REQUIRE(call) require((call) == 0, #call)

/// Computes until the host sets *flag, or for about a second.
__global__ void spin(const volatile int* flag) {
  const long long begin = clock64();
  while (*flag == 0 && clock64() - begin < 2'000'000'000LL) {
  }
}
/// Kernels that nobody has launched before.
template <int number>
__global__ void add_to(float* x) {
  x[threadIdx.x] += number;
}

/// A kernel that runs on a stream of its own until this object goes. A block occupies a multiprocessor, or a part of it.
class Spinning {
 public:
  explicit Spinning(int blocks = 1) {
    REQUIRE(cudaHostAlloc(reinterpret_cast<void**>(&flag_), sizeof(int), cudaHostAllocMapped));
    *flag_ = 0;
    REQUIRE(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    spin<<<blocks, 1024, 0, stream_>>>(flag_);
    REQUIRE(cudaGetLastError());
  }
  ~Spinning() {
    *static_cast<volatile int*>(flag_) = 1;
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
    cudaFreeHost(flag_);
  }
  cudaStream_t stream() const { return stream_; }

 private:
  int* flag_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

/// Whether a call returns while a kernel runs on another stream.
void ask(const char* what, const char* assumed, const std::function<void(const Spinning&)>& call,
         int blocks = 1) {
  Spinning kernel(blocks);
  const auto start = Clock::now();
  call(kernel);
  const bool returns = cudaStreamQuery(kernel.stream()) == cudaErrorNotReady;
  std::printf("%-46s %s after %.6f s (cuda/ assumes: %s)\n", what, returns ? "returns" : "waits",
              seconds_since(start), assumed);
}

/// What stays in cudaGetLastError.
void errors() {
  Spinning kernel;
  cudaEvent_t event = nullptr;
  REQUIRE(cudaEventCreate(&event));
  REQUIRE(cudaEventRecord(event, kernel.stream()));
  const cudaError_t not_ready = cudaEventQuery(event), after_query = cudaGetLastError();
  std::printf("cudaEventQuery: %s, then cudaGetLastError: %s (cuda/ assumes: no error stays)\n",
              cudaGetErrorName(not_ready), cudaGetErrorName(after_query));
  void* memory = nullptr;
  const cudaError_t refused = cudaMalloc(&memory, std::size_t{1} << 50);
  const cudaError_t first = cudaGetLastError(), second = cudaGetLastError();
  std::printf("cudaMalloc of 2^50 bytes: %s, then cudaGetLastError: %s, %s (cuda/ assumes: it stays once)\n",
              cudaGetErrorName(refused), cudaGetErrorName(first), cudaGetErrorName(second));
}

/// A product of n x n matrices.
void multiply(cublasHandle_t blas, int n, const void* a, const void* b, float* c, cudaDataType_t type,
              cublasComputeType_t compute) {
  const float one = 1, zero = 0;
  REQUIRE(cublasGemmEx(blas, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, a, type, n, b, type, n, &zero, c,
                       CUDA_R_32F, n, compute, CUBLAS_GEMM_DEFAULT));
}

ncclComm_t communicator_of_one() {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id));
  ncclComm_t comm = nullptr;
  REQUIRE(ncclCommInitRank(&comm, 1, id, 0));
  return comm;
}

/// What cuBLAS and NCCL may wait for.
void waits_of_libraries(float* memory, cudaStream_t other) {
  cublasHandle_t blas = nullptr;
  ask("cublasCreate", "may wait", [&](const Spinning&) { REQUIRE(cublasCreate(&blas)); });
  REQUIRE(cublasSetStream(blas, other));
  auto first_product = [&](const char* what, cudaDataType_t type, cublasComputeType_t compute) {
    ask(what, "returns",
        [&](const Spinning&) { multiply(blas, 256, memory, memory, memory + (1 << 18), type, compute); });
  };
  first_product("first product in float32", CUDA_R_32F, CUBLAS_COMPUTE_32F_PEDANTIC);
  first_product("first product in tf32", CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32);
  first_product("first product in bf16", CUDA_R_16BF, CUBLAS_COMPUTE_32F);
  ask("ncclCommInitRank of one rank", "may wait", [](const Spinning&) { communicator_of_one(); });
}

void waits_of_copies(float* memory, cudaStream_t other) {
  std::vector<char> host(1 << 20);
  ask("cudaMemcpy2DAsync of 64 KiB pageable bytes", "may wait", [&](const Spinning&) {
    REQUIRE(cudaMemcpy2DAsync(memory, 512, host.data(), 256, 256, 256, cudaMemcpyHostToDevice, other));
  });
  for (const int bytes : {4 << 10, 64 << 10, 1 << 20}) {
    const std::string what = "copy of " + std::to_string(bytes) + " pageable bytes to the GPU";
    const char* assumed = bytes <= 64 << 10 ? "returns" : "may wait";
    ask((what + ", same stream").c_str(), assumed, [&](const Spinning& kernel) {
      REQUIRE(cudaMemcpyAsync(memory, host.data(), bytes, cudaMemcpyHostToDevice, kernel.stream()));
    });
    ask((what + ", other stream").c_str(), assumed, [&](const Spinning&) {
      REQUIRE(cudaMemcpyAsync(memory, host.data(), bytes, cudaMemcpyHostToDevice, other));
    });
  }
}

void waits() {
  float* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 1 << 21));
  cudaStream_t other = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  waits_of_copies(memory, other);
  ask("first launch of a kernel", "returns, since kernels are loaded eagerly", [&](const Spinning&) {
    add_to<1><<<1, 32, 0, other>>>(memory);
    REQUIRE(cudaGetLastError());
  });
  void* more = nullptr;
  ask("cudaMalloc", "may wait", [&](const Spinning&) { REQUIRE(cudaMalloc(&more, 1 << 24)); });
  ask("cudaFree", "may wait", [&](const Spinning&) { REQUIRE(cudaFree(more)); });
  ask("cudaMallocHost of 16 MiB", "may wait",
      [&](const Spinning&) { REQUIRE(cudaMallocHost(&more, 1 << 24)); });
  ask("cudaFreeHost", "may wait", [&](const Spinning&) { REQUIRE(cudaFreeHost(more)); });
  ask("cudaHostAlloc of 16 MiB", "may wait",
      [&](const Spinning&) { REQUIRE(cudaHostAlloc(&more, 1 << 24, cudaHostAllocDefault)); });
  cudaStream_t urgent = nullptr;
  ask("cudaStreamCreateWithPriority", "returns",
      [&](const Spinning&) { REQUIRE(cudaStreamCreateWithPriority(&urgent, cudaStreamNonBlocking, -1)); });
  cudaEvent_t event = nullptr;
  ask("cudaEventCreateWithFlags", "returns",
      [&](const Spinning&) { REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming)); });
  cudaDeviceProp gpu{};
  REQUIRE(cudaGetDeviceProperties(&gpu, 0));
  ask(
      "cudaMalloc beside a kernel on all multiprocessors", "may wait",
      [&](const Spinning&) { REQUIRE(cudaMalloc(&more, 1 << 24)); }, 2 * gpu.multiProcessorCount);
  waits_of_libraries(memory, other);
  ask("1100 launches", "may wait: a queue of launches ends", [&](const Spinning& kernel) {
    for (int i = 0; i < 1100; ++i) add_to<1><<<1, 32, 0, kernel.stream()>>>(memory);
    REQUIRE(cudaGetLastError());
  });
}

/// How many streams run beside a kernel, and do not share its hardware queue.
void streams() {
  float* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 1 << 10));
  add_to<2><<<1, 32>>>(memory);
  REQUIRE(cudaDeviceSynchronize());
  std::vector<cudaStream_t> others(48);
  for (cudaStream_t& s : others) REQUIRE(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  Spinning kernel;
  for (cudaStream_t s : others) add_to<2><<<1, 32, 0, s>>>(memory);
  const auto start = Clock::now();
  std::size_t done = 0;
  while (done < others.size() && seconds_since(start) < 0.2) {
    done = 0;
    for (cudaStream_t s : others) done += cudaStreamQuery(s) == cudaSuccess;
  }
  std::printf(
      "%zu of %zu streams go on beside a kernel that runs (cuda/ assumes: at least 31, with 32 queues)\n",
      done, others.size());
}

/// What a launch, an event and the libraries cost, and what the GPU can.
void costs() {
  std::size_t before = 0, all = 0;
  auto tell_memory = [&](const char* what) {
    std::size_t free = 0;
    REQUIRE(cudaMemGetInfo(&free, &all));
    if (before > 0)
      std::printf("memory of %s: %.1f MiB\n", what, (static_cast<double>(before) - free) / (1 << 20));
    before = free;
  };
  tell_memory("");
  std::printf("memory of all kernels and of the driver: %.1f MiB\n",
              static_cast<double>(all - before) / (1 << 20));
  cublasHandle_t blas = nullptr;
  REQUIRE(cublasCreate(&blas));
  tell_memory("cublasCreate");
  communicator_of_one();
  tell_memory("ncclCommInitRank of one rank");
  int reads_pageable = 0, pitch = 0;
  REQUIRE(cudaDeviceGetAttribute(&reads_pageable, cudaDevAttrPageableMemoryAccess, 0));
  REQUIRE(cudaDeviceGetAttribute(&pitch, cudaDevAttrMaxPitch, 0));
  std::printf("reads pageable memory: %d; largest distance of rows: %d (cuda/ assumes: 2^31 - 1)\n",
              reads_pageable, pitch);
  float* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 1 << 20));
  constexpr int launches = 500;  // fewer than a queue holds
  add_to<3><<<1, 32>>>(memory);
  REQUIRE(cudaDeviceSynchronize());
  auto start = Clock::now();
  for (int i = 0; i < launches; ++i) add_to<3><<<1, 32>>>(memory);
  std::printf("a launch: %.2f us of the host\n", 1e6 * seconds_since(start) / launches);
  REQUIRE(cudaDeviceSynchronize());
  cudaEvent_t event = nullptr;
  REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  start = Clock::now();
  for (int i = 0; i < launches; ++i) {
    REQUIRE(cudaEventRecord(event));
    while (cudaEventQuery(event) == cudaErrorNotReady) {
    }
  }
  std::printf("an event, until the host sees it: %.2f us\n", 1e6 * seconds_since(start) / launches);
}

/// The time of one of ten calls, after one that does not count.
double seconds_of(const std::function<void()>& call) {
  call();
  REQUIRE(cudaDeviceSynchronize());
  const auto start = Clock::now();
  for (int i = 0; i < 10; ++i) call();
  REQUIRE(cudaDeviceSynchronize());
  return seconds_since(start) / 10;
}

/// Numbers whose bits differ, as those of a network: a GPU draws less power, and is quicker, with zeros.
__global__ void fill(float* x, unsigned seed) {
  const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned bits = (at ^ seed) * 2654435761u;
  bits ^= bits >> 15;
  x[at] = static_cast<float>(bits * 2246822519u) / 4294967296.0f - 0.5f;
}

/// The bandwidth of cuda/'s kernels that a step calls on most elements.
template <class Kernel, class... Args>
void rate_of_kernel(const char* name, double bytes_of_element, Kernel kernel, std::int64_t elements,
                    Args... args) {
  const double seconds = seconds_of([&] {
    shard::cuda::launch_kernel(shard::cuda::ByFours<Kernel>{kernel}, elements / 4, nullptr, args...);
    REQUIRE(cudaGetLastError());
  });
  std::printf("%s: %.0f GB/s\n", name, bytes_of_element * elements / seconds / 1e9);
}

void rates() {
  constexpr int n = 8192;
  float *a = nullptr, *b = nullptr, *c = nullptr;
  for (float** matrix : {&a, &b, &c}) {
    REQUIRE(cudaMalloc(matrix, sizeof(float) * n * n));
    fill<<<n * n / 256, 256>>>(*matrix,
                               static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(*matrix) >> 20));
    REQUIRE(cudaGetLastError());
  }
  const double bytes = 2.0 * sizeof(float) * n * n;  // read and written
  const double copy =
      seconds_of([&] { REQUIRE(cudaMemcpyAsync(b, a, bytes / 2, cudaMemcpyDeviceToDevice)); });
  std::printf("copy: %.0f GB/s\n", bytes / copy / 1e9);
  for (const std::size_t width : {64, 512}) {  // narrow slices
    const std::size_t rows = (std::size_t{1} << 26) / width;
    const double seconds = seconds_of(
        [&] { REQUIRE(cudaMemcpy2DAsync(b, width, a, 2 * width, width, rows, cudaMemcpyDeviceToDevice)); });
    std::printf("copy of rows of %zu bytes: %.0f GB/s\n", width, 2.0 * width * rows / seconds / 1e9);
  }
  cublasHandle_t blas = nullptr;
  REQUIRE(cublasCreate(&blas));
  auto rate = [&](const char* name, cudaDataType_t type, cublasComputeType_t compute) {
    const double seconds = seconds_of([&] { multiply(blas, n, a, b, c, type, compute); });
    std::printf("product in %s: %.0f TFLOP/s\n", name, 2.0 * n * n * n / seconds / 1e12);
  };
  rate("float32, pedantic", CUDA_R_32F, CUBLAS_COMPUTE_32F_PEDANTIC);
  rate("float32", CUDA_R_32F, CUBLAS_COMPUTE_32F);
  rate("tf32", CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32);
  rate("bf16", CUDA_R_16BF, CUBLAS_COMPUTE_32F);
  const float* const read = a;
  rate_of_kernel("rounding to bf16", 6, shard::kernels::ToBf16(), n * n, read,
                 reinterpret_cast<std::uint16_t*>(b));
  float* variances = nullptr;
  REQUIRE(cudaMalloc(&variances, sizeof(float) * n * n));
  REQUIRE(cudaMemset(variances, 0, sizeof(float) * n * n));
  rate_of_kernel("Adam", 28, shard::kernels::AdamUpdate{0.9F, 0.999F, 1e-8F, 1e-3F, 1}, n * n, b, read, c,
                 variances);
}

/// The version, and an all-reduce of each GPU of this machine.
void nccl() {
  int version = 0, devices = 0;
  REQUIRE(ncclGetVersion(&version));
  REQUIRE(cudaGetDeviceCount(&devices));
  std::vector<ncclComm_t> comms(devices);
  std::vector<float*> memory(devices);
  const auto start = Clock::now();
  REQUIRE(ncclCommInitAll(comms.data(), devices, nullptr));
  std::printf("NCCL %d, %d GPUs, communicators after %.1f s\n", version, devices, seconds_since(start));
  if (devices == 1) return;  // which has nobody to reduce with
  for (int d = 0; d < devices; ++d) {
    REQUIRE(cudaSetDevice(d));
    REQUIRE(cudaMalloc(&memory[d], 1 << 28));
  }
  auto all_reduce = [&] {
    REQUIRE(ncclGroupStart());
    for (int d = 0; d < devices; ++d)
      REQUIRE(ncclAllReduce(memory[d], memory[d], 1 << 26, ncclFloat, ncclSum, comms[d], nullptr));
    REQUIRE(ncclGroupEnd());
    for (int d = 0; d < devices; ++d) {
      REQUIRE(cudaSetDevice(d));
      REQUIRE(cudaDeviceSynchronize());
    }
  };
  all_reduce();
  const auto begin = Clock::now();
  all_reduce();
  std::printf("all-reduce of 256 MiB: %.4f s\n", seconds_since(begin));
}

}  // namespace

int main(int argc, char** argv) {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);  // as cuda/ does
  const std::pair<const char*, void (*)()> questions[] = {{"errors", errors},   {"waits", waits},
                                                          {"streams", streams}, {"costs", costs},
                                                          {"rates", rates},     {"nccl", nccl}};
  for (const auto& [name, answer] : questions) {
    if (argc != 2 || std::strcmp(argv[1], name) != 0) continue;
    answer();
    return 0;
  }
  std::fprintf(stderr, "probe: expected errors, waits, streams, costs, rates or nccl\n");
  return 64;
}
