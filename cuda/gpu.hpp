#pragma once

/// This process's GPU: its queues ("streams" in CUDA's words), and how host and queues wait for one another.

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include "engine/device/runtime/control.hpp"

namespace shard::cuda {

/// A point in a queue. Also what an operation may await.
class Event : public runtime::Awaited {
 public:
  Event();
  ~Event() override;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(cudaStream_t queue);
  /// What is queued there from now on comes after this point. Nothing, if it was never recorded.
  void hold(cudaStream_t queue) const;
  /// Whether the GPU has got past it; true if it was never recorded.
  bool test() override;
  std::optional<Blocked::Needs> needs() const override { return Blocked::Needs{}; }

 private:
  cudaEvent_t event_;
  bool is_recorded_ = false;
};

class Gpu {
 public:
  Gpu();

  /// Operations on tensors.
  cudaStream_t computation() const { return computation_; }
  /// Collectives, in the order in which they were started.
  cudaStream_t communication() const { return communication_; }
  cublasHandle_t blas() const { return blas_; }

  /// Where a reduction leaves one number for each of its lanes.
  static constexpr Index lanes = 4096;
  double* scratch() const { return scratch_; }

  /// Gives everything back, at MPI_Finalize.
  void close();
  bool is_closed() const { return is_closed_; }

 private:
  cudaStream_t computation_{}, communication_{};
  cublasHandle_t blas_{};
  double* scratch_ = nullptr;
  bool is_closed_ = false;
};

Gpu& gpu();

cudaStream_t new_queue();
/// Returns when the queue is empty. Meanwhile messages go on, and bad news is heard. \throws Error lost
void finish(cudaStream_t queue);
/// What the computation has made of this memory.
void copy_to_host(void* to, const void* from, std::size_t bytes);
/// The numbers that a reduction has left.
std::vector<double> scratch_on_host();

}  // namespace shard::cuda
