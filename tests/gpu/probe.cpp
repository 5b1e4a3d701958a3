/// Questions about CUDA and NCCL that only a GPU can answer: each is a run of its own, since its answer may be that
/// a call never returns. What cuda/ assumes is printed beside what is seen.
///
///     probe errors | waits | streams | rates | nccl

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

/// A kernel that runs on a stream of its own until this object goes.
class Spinning {
 public:
  Spinning() {
    REQUIRE(cudaHostAlloc(reinterpret_cast<void**>(&flag_), sizeof(int), cudaHostAllocMapped));
    *flag_ = 0;
    REQUIRE(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    spin<<<1, 1, 0, stream_>>>(flag_);
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
void ask(const char* what, const char* assumed, const std::function<void(const Spinning&)>& call) {
  Spinning kernel;
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

void waits() {
  float* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 1 << 21));
  cudaStream_t other = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  std::vector<char> host(1 << 20);
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
  cudaStream_t urgent = nullptr;
  ask("cudaStreamCreateWithPriority", "returns",
      [&](const Spinning&) { REQUIRE(cudaStreamCreateWithPriority(&urgent, cudaStreamNonBlocking, -1)); });
  cudaEvent_t event = nullptr;
  ask("cudaEventCreateWithFlags", "returns",
      [&](const Spinning&) { REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming)); });
  cublasHandle_t blas = nullptr;
  ask("cublasCreate", "may wait", [&](const Spinning&) { REQUIRE(cublasCreate(&blas)); });
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
  std::vector<cudaStream_t> others(16);
  for (cudaStream_t& s : others) REQUIRE(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  Spinning kernel;
  for (cudaStream_t s : others) add_to<2><<<1, 32, 0, s>>>(memory);
  const auto start = Clock::now();
  std::size_t done = 0;
  while (done < others.size() && seconds_since(start) < 0.2) {
    done = 0;
    for (cudaStream_t s : others) done += cudaStreamQuery(s) == cudaSuccess;
  }
  std::printf("%zu of %zu streams go on beside a kernel that runs (cuda/ assumes: all, with 32 queues)\n",
              done, others.size());
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
  cublasHandle_t blas = nullptr;
  REQUIRE(cublasCreate(&blas));
  const float one = 1, zero = 0;
  auto rate = [&](const char* name, cudaDataType_t type, cublasComputeType_t compute) {
    const double seconds = seconds_of([&] {
      REQUIRE(cublasGemmEx(blas, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, a, type, n, b, type, n, &zero, c,
                           CUDA_R_32F, n, compute, CUBLAS_GEMM_DEFAULT));
    });
    std::printf("product in %s: %.0f TFLOP/s\n", name, 2.0 * n * n * n / seconds / 1e12);
  };
  rate("float32, pedantic", CUDA_R_32F, CUBLAS_COMPUTE_32F_PEDANTIC);
  rate("float32", CUDA_R_32F, CUBLAS_COMPUTE_32F);
  rate("tf32", CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32);
  rate("bf16", CUDA_R_16BF, CUBLAS_COMPUTE_32F);
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
  const std::pair<const char*, void (*)()> questions[] = {
      {"errors", errors}, {"waits", waits}, {"streams", streams}, {"rates", rates}, {"nccl", nccl}};
  for (const auto& [name, answer] : questions) {
    if (argc != 2 || std::strcmp(argv[1], name) != 0) continue;
    answer();
    return 0;
  }
  std::fprintf(stderr, "probe: expected errors, waits, streams, rates or nccl\n");
  return 64;
}
