#pragma once

/// This process's GPU: its streams, and the waits of host and streams for one another.

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <list>

#include "engine/device/runtime/groups/group.hpp"

namespace shard::cuda {

using runtime::Blocked;

/// An event: a point in a stream. A body can await it.
class Event : public runtime::Awaited {
 public:
  Event();
  ~Event() override;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(cudaStream_t stream);
  /// Makes work that is launched in `stream` from now on wait for this event. No effect if never recorded.
  void make_wait(cudaStream_t stream) const;
  /// Whether the GPU has reached it; true if it was never recorded.
  bool test() override;
  std::optional<Blocked::Dependencies> dependencies() const override { return Blocked::Dependencies{}; }

 private:
  cudaEvent_t event_;
  bool is_recorded_ = false;
};

class Gpu {
 public:
  Gpu();

  /// The stream of operations on tensors.
  cudaStream_t computation() const { return computation_; }
  /// The stream of the collectives of all groups, in the order in which this device started them.
  cudaStream_t communication() const { return communication_; }
  cublasHandle_t blas() const { return blas_; }

  /// Whether another process of the job has this GPU, too, or two others share one. NCCL does not support that, so
  /// data goes through the host's memory and over the wire (host_staged.hpp).
  bool is_shared() const { return is_shared_; }

  /// Memory for the partial results of a reduction, one for each team of threads.
  static constexpr Index teams = 4096;
  double* scratch() const { return scratch_; }
  /// The last two of the places in the computation stream that stay_below_full_queue marks, the older one first.
  std::list<Event>& marks() { return marks_; }

  /// Frees all resources, at MPI_Finalize.
  void close();
  bool is_closed() const { return is_closed_; }

 private:
  cudaStream_t computation_{}, communication_{};
  cublasHandle_t blas_{};
  double* scratch_ = nullptr;
  std::list<Event> marks_;
  bool is_shared_ = false, is_closed_ = false;
};

Gpu& gpu();

/// A GPU starts the blocks of an urgent stream's kernels before those that wait in other streams: a collective need
/// not wait for the end of a long product.
cudaStream_t new_stream(bool is_urgent);
/// Returns when the stream has done all its work. This device's calls proceed meanwhile. \throws Error lost
void finish(cudaStream_t stream);
/// The same, when the GPU has reached the event.
void wait_for(Event& event);
/// Called before each launch of computation. A queue of the GPU has room for 1,024 launches; a host that finds it full
/// waits in the driver, and launches nothing that other devices may wait for. So the host waits here, and serves its
/// calls, until it is less than 768 launches ahead. Within the body of a call it does not wait.
void stay_below_full_queue();

}  // namespace shard::cuda
