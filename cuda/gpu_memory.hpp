#pragma once

/// The GPU's memory. Freeing a tensor waits for nothing. The stream that a block was made for may take it
/// again at once, since a stream does its work in order. Before it does, it waits for the other streams that
/// used the block.

#include <cuda_runtime.h>

#include "engine/device/runtime/operations/tensor_memory.hpp"

namespace shard {

/// A block of the GPU's memory, in the ledger under its purpose.
class Storage {
 public:
  /// Memory that the stream `home` uses first. Without a stream the bytes are booked and not allocated.
  Storage(Index bytes, Purpose purpose, cudaStream_t home);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  /// For work that is launched in this stream.
  float* data_on(cudaStream_t stream);
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

/// A tensor that the stream `home` uses first.
Tensor make_on(cudaStream_t home, Shape shape, Purpose purpose = Purpose::activations);
/// A tensor's memory, for work that is launched in this stream. (TensorMemory::data: in the computation's.)
float* data_on(cudaStream_t stream, Tensor& t);
const float* data_on(cudaStream_t stream, const Tensor& t);

/// Memory of the GPU for work that is launched in one stream, the computation's unless another is given. It
/// belongs to no tensor and is not booked.
class Workspace {
 public:
  explicit Workspace(Index bytes);
  Workspace(Index bytes, cudaStream_t home);
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
  cudaStream_t home_;
  void* data_ = nullptr;
};

/// A copy of a call's numbers in the GPU's memory.
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
  /// Copies back what kernels have written there.
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
