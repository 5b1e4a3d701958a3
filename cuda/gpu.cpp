#include "cuda/gpu.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

#include "cuda/gpu_memory.hpp"
#include "cuda/nccl/connections.hpp"
#include "cuda/success.hpp"
#include "engine/device/runtime/stream.hpp"

namespace shard::cuda {

Event::Event() {
  SHARDBOOK_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
}

Event::~Event() {
  if (!gpu().is_closed()) cudaEventDestroy(event_);
}

void Event::record(cudaStream_t stream) {
  SHARDBOOK_CHECK(cudaEventRecord(event_, stream));
  is_recorded_ = true;
}

void Event::make_wait(cudaStream_t stream) const {
  if (is_recorded_) SHARDBOOK_CHECK(cudaStreamWaitEvent(stream, event_, 0));
}

bool Event::test() {
  if (!is_recorded_) return true;
  const cudaError_t state = cudaEventQuery(event_);
  if (state == cudaErrorNotReady) return false;
  check(state, "cudaEventQuery(event_)", __FILE__, __LINE__);
  return true;
}

namespace {

/// The error of cudaGetDeviceCount, and the versions, which may be its cause.
std::string reason_for_none(cudaError_t counted) {
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  return fmt::format(": {} (driver {}.{}, runtime {}.{})", cudaGetErrorString(counted), driver / 1000,
                     driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
}

/// Whether two processes of the job have chosen the same GPU. They compare uuids: processes may see different GPUs, and
/// two containers on one machine are two machines for MPI.
bool is_chosen_twice(const cudaUUID_t& mine) {
  int processes = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &processes);
  std::vector<cudaUUID_t> all(static_cast<std::size_t>(processes));
  MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, MPI_COMM_WORLD);
  std::set<std::string> gpus;
  for (const cudaUUID_t& one : all) gpus.emplace(one.bytes, sizeof one.bytes);
  return static_cast<int>(gpus.size()) < processes;
}

void take_gpu(int number) {
  const cudaError_t taken = cudaSetDevice(number);
  if (taken == cudaErrorDevicesUnavailable)
    throw Error(Code::missing,
                fmt::format("device {}: expected GPU {} to be free, given another process that has it "
                            "for itself (nvidia-smi: compute mode)",
                            this_device(), number));
  check(taken, "cudaSetDevice(number)", __FILE__, __LINE__);
}

/// The k-th process on a machine takes the k-th GPU that it sees. Returns whether two of the job chose the same one.
/// \throws Error missing where there is none
bool choose_gpu() {
  MPI_Comm machine;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
  int place = 0, seen = 0;
  MPI_Comm_rank(machine, &place);
  const cudaError_t counted = cudaGetDeviceCount(&seen);
  cudaDeviceProp mine{};
  if (counted == cudaSuccess && seen > 0) {
    take_gpu(place % seen);
    SHARDBOOK_CHECK(cudaGetDeviceProperties(&mine, place % seen));
  }
  MPI_Comm_free(&machine);
  const bool is_shared = is_chosen_twice(mine.uuid);
  if (counted != cudaSuccess || seen == 0)
    throw Error(Code::missing, fmt::format("device {}: expected a GPU on each machine, given none{}",
                                           this_device(), reason_for_none(counted)));
  if (is_shared && std::getenv("SHARDBOOK_NCCL_ON_SHARED_GPUS") != nullptr) {
    // A smoke test. NCCL takes processes with different ids for processes of different machines.
    setenv("NCCL_HOSTID", fmt::format("shardbook-{}", this_device()).c_str(), 0);
    if (this_device() == 0)
      std::fputs("NCCL does not support two processes on one GPU: a smoke test\n", stderr);
    return false;
  }
  return is_shared;
}

/// Sets variables that the libraries read at their first call. Before main: an MPI for GPUs makes that call in
/// MPI_Init.
bool set_environment() {
  // NCCL connects a communicator's members when it is made. At its first collective, the host would wait for a
  // peer, which may be waiting for this host.
  setenv("NCCL_RUNTIME_CONNECT", "0", 0);
  // The driver loads all kernels at the start. At a kernel's first launch it may wait for the GPU's work, which
  // may wait for other devices, and these for this host.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  // A hardware queue for each stream: streams that share a queue wait for one another.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  return true;
}
[[maybe_unused]] const bool environment_is_set = set_environment();

/// MPI calls this at the beginning of MPI_Finalize, when no device waits for another one.
int at_finalize(MPI_Comm, int, void*, void*) {
  gpu().close();
  return MPI_SUCCESS;
}

void call_at_finalize() {
  int key = 0;
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_finalize, &key, nullptr);
  MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr);
}

}  // namespace

Gpu::Gpu() {
  is_shared_ = choose_gpu();
  computation_ = new_stream(false);
  communication_ = new_stream(true);
  SHARDBOOK_CHECK(cublasCreate(&blas_));
  SHARDBOOK_CHECK(cublasSetStream(blas_, computation_));
  SHARDBOOK_CHECK(cudaMalloc(reinterpret_cast<void**>(&scratch_), teams * sizeof(double)));
  call_at_finalize();
}

void Gpu::close() {
  cudaDeviceSynchronize();
  close_connections();
  release_blocks();
  marks_.clear();
  cudaFree(scratch_);
  cublasDestroy(blas_);
  cudaStreamDestroy(communication_);
  cudaStreamDestroy(computation_);
  is_closed_ = true;
}

/// Never destroyed: a static tensor may be destroyed after it.
Gpu& gpu() {
  static auto* instance = new Gpu;
  return *instance;
}

cudaStream_t new_stream(bool is_urgent) {
  int least = 0, greatest = 0;
  SHARDBOOK_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  cudaStream_t stream;
  SHARDBOOK_CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, is_urgent ? greatest : least));
  return stream;
}

namespace {

using Clock = std::chrono::steady_clock;

/// The time after which a waiting host reports, and between its reports.
Clock::duration patience() {
  const char* given = std::getenv("SHARDBOOK_GPU_PATIENCE");
  return std::chrono::seconds(given == nullptr ? 60 : std::max(1, std::atoi(given)));
}

/// Prints which streams have unfinished work, and the call that each is at: a GPU that waits for another one forever
/// prints nothing.
void report_busy_streams(Clock::duration waited) {
  std::vector<std::string> busy;
  for (const auto& [work, stream] : streams())
    if (cudaStreamQuery(stream) == cudaErrorNotReady) busy.push_back(work + first_call_in(stream));
  const std::string line =
      fmt::format("device {}: waiting {} s for its GPU, which is at: {}\n", this_device(),
                  std::chrono::duration_cast<std::chrono::seconds>(waited).count(), fmt::join(busy, ", "));
  std::fwrite(line.data(), 1, line.size(), stderr);  // one write
}

}  // namespace

void finish(cudaStream_t stream) {
  Event end;
  end.record(stream);
  wait_for(end);
}

void wait_for(Event& event) {
  runtime::Wait wait;
  const Clock::time_point since = Clock::now();
  Clock::time_point next = since + patience();
  while (!event.test()) {
    runtime::stream().resume_ready();
    check_connections();
    if (Clock::now() > next) {
      report_busy_streams(next - since);
      next += patience();
    }
    wait.idle([] {
      Blocked blocked;  // without dependencies on other devices
      blocked.call = "the GPU's work";
      return blocked;
    });
  }
}

void stay_below_full_queue() {
  constexpr unsigned between = 256;  // launches from mark to mark
  static unsigned launches = 0;
  if (runtime::stream().is_in_body() || ++launches % between != 0) return;
  std::list<Event>& marks = gpu().marks();
  if (marks.size() < 2)
    marks.emplace_back();
  else
    marks.splice(marks.end(), marks, marks.begin());
  wait_for(marks.back());
  marks.back().record(gpu().computation());
}

}  // namespace shard::cuda
