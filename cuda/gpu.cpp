#include "cuda/gpu.hpp"

#include <fmt/format.h>
#include <mpi.h>

#include <cstdio>
#include <cstdlib>

#include "cuda/gpu_memory.hpp"
#include "cuda/nccl_connections.hpp"
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

void Event::hold(cudaStream_t stream) const {
  if (is_recorded_) SHARDBOOK_CHECK(cudaStreamWaitEvent(stream, event_, 0));
}

bool Event::test() {
  if (!is_recorded_) return true;
  const cudaError_t state = cudaEventQuery(event_);
  if (state == cudaErrorNotReady) return false;
  SHARDBOOK_CHECK(state);
  return true;
}

namespace {

/// The number of processes on this machine, and the place of this process among them.
struct Neighbours {
  int mine = 0;
  int count = 1;

  Neighbours() {
    MPI_Comm machine;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
    MPI_Comm_rank(machine, &mine);
    MPI_Comm_size(machine, &count);
    MPI_Comm_free(&machine);
  }
};

/// The k-th process on a machine takes its k-th GPU. \throws Error usage when there are too few GPUs.
void choose_gpu() {
  const Neighbours neighbours;
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess) gpus = 0;  // the call fails where there is no driver
  if (neighbours.count > gpus) {
    const char* hint = gpus == 0
                           ? ""
                           : "; SHARDBOOK_SHARE_GPUS=1 has processes share one, for tests: each then gets "
                             "an NCCL_HOSTID of its own, and NCCL goes through sockets (slow, correct)";
    if (std::getenv("SHARDBOOK_SHARE_GPUS") == nullptr || gpus == 0)
      throw Error(
          Code::usage,
          fmt::format("device {}: expected a GPU for each of the {} processes of this machine, given {}{}",
                      this_device(), neighbours.count, gpus, hint));
    setenv("NCCL_HOSTID", fmt::format("shardbook-{}", this_device()).c_str(), 0);
  }
  SHARDBOOK_CHECK(cudaSetDevice(neighbours.mine % gpus));
}

/// MPI calls this when MPI_Finalize begins. From then on, no device waits for another one.
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
  choose_gpu();
  computation_ = new_stream();
  communication_ = new_stream();
  SHARDBOOK_CHECK(cublasCreate(&blas_));
  SHARDBOOK_CHECK(cublasSetStream(blas_, computation_));
  SHARDBOOK_CHECK(cudaMalloc(reinterpret_cast<void**>(&scratch_), lanes * sizeof(double)));
  call_at_finalize();
}

void Gpu::close() {
  cudaDeviceSynchronize();
  close_connections();
  release_blocks();
  cudaFree(scratch_);
  cublasDestroy(blas_);
  cudaStreamDestroy(communication_);
  cudaStreamDestroy(computation_);
  is_closed_ = true;
}

/// Never destroyed: static tensors may outlive any other static.
Gpu& gpu() {
  static auto* instance = new Gpu;
  return *instance;
}

cudaStream_t new_stream() {
  cudaStream_t stream;
  SHARDBOOK_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

void finish(cudaStream_t stream) {
  Event end;
  end.record(stream);
  ControlPlane::Wait wait;
  while (!end.test()) {
    runtime::stream().advance();
    check_connections();
    wait.idle([] {
      Blocked blocked;  // it needs nothing of other devices
      blocked.call = "the GPU's work";
      return blocked;
    });
  }
}

std::vector<double> scratch_on_host() {
  std::vector<double> numbers(Gpu::lanes);
  copy_to_host(numbers.data(), gpu().scratch(), Gpu::lanes * sizeof(double));
  return numbers;
}

}  // namespace shard::cuda
