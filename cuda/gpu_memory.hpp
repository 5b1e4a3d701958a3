#pragma once

/// The GPU's memory. Nothing is waited for when a tensor is freed: its block may be taken again by the queue
/// that it was made for, whose order makes that safe; other queues that used it are remembered, and waited
/// for then.

#include <cuda_runtime.h>

#include "engine/device/runtime/tensor_memory.hpp"

namespace shard {

/// A block of the GPU's memory, in the ledger under its purpose.
class Storage {
 public:
  /// Memory whose first user is `home`. No queue at all: bytes that are booked, of which there is no memory.
  Storage(Index bytes, Purpose purpose, cudaStream_t home);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  /// For use by what is queued there.
  float* data_on(cudaStream_t queue);
  Purpose purpose() const { return purpose_; }
  void charge_to(Purpose purpose);

 private:
  Index bytes_;
  Purpose purpose_;
  cudaStream_t home_;
  float* data_ = nullptr;
  std::vector<cudaStream_t> other_users_;
};

namespace cuda {

/// A tensor whose first user is another queue than the computation's.
Tensor make_on(cudaStream_t home, Shape shape, Purpose purpose = Purpose::activations);
/// A tensor's memory, for use by what is queued there. (TensorMemory::data is for the computation's queue.)
float* data_on(cudaStream_t queue, Tensor& t);
const float* data_on(cudaStream_t queue, const Tensor& t);

/// Memory of the GPU for kernels of the computation. It is in no tensor and not booked.
class Workspace {
 public:
  explicit Workspace(Index bytes);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  std::size_t bytes() const { return bytes_; }
  template <class T>
  const T* data() const {
    return static_cast<const T*>(data_);
  }
  template <class T>
  T* data() {
    return static_cast<T*>(data_);
  }

 private:
  std::size_t bytes_;
  void* data_ = nullptr;
};

/// A call's numbers in the GPU's memory too.
class OnDeviceToo {
 public:
  template <class T>
  explicit OnDeviceToo(std::span<const T> numbers) : OnDeviceToo(numbers.data(), numbers.size_bytes()) {}
  template <class T>
  explicit OnDeviceToo(const std::vector<T>& numbers) : OnDeviceToo(std::span<const T>(numbers)) {}

  template <class T>
  const T* data() const {
    return memory_.data<T>();
  }
  template <class T>
  T* data() {
    return memory_.data<T>();
  }
  /// What kernels have made of them.
  template <class T>
  void fetch(std::vector<T>& numbers) const {
    fetch_into(numbers.data());
  }

 private:
  OnDeviceToo(const void* numbers, std::size_t bytes);
  void fetch_into(void* numbers) const;

  Workspace memory_;
};

/// Gives memory that no tensor holds back to CUDA.
void release_blocks();

}  // namespace cuda
}  // namespace shard
