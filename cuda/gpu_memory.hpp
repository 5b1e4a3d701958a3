#pragma once

/// The GPU's memory. Freeing a tensor does not wait. The block's home stream may reuse it at once, since a stream
/// executes its work in order. If other streams used the block, computation first waits for these, and communication
/// takes another block.

#include <cuda_runtime.h>

#include <algorithm>
#include <unordered_map>

#include "cuda/gpu.hpp"
#include "engine/device/books/ledger.hpp"
#include "engine/device/runtime/operations/tensor_memory.hpp"

namespace shard::cuda {

class Workspace;

/// A block of the GPU's memory.
class GpuStorage : public Storage {
 public:
  /// Memory of the stream `home`. Without a stream, the bytes are booked and not allocated.
  GpuStorage(Index bytes, Purpose purpose, cudaStream_t home);
  ~GpuStorage();

  /// The address, for work that is launched in this stream.
  float* data_on(cudaStream_t stream);

  /// All elements of a small tensor that came from the host, until work may write to it: reading them needs
  /// no wait. Computation copies them to the GPU when work first reads them, at the latest when a call begins.
  std::vector<float> from_host;
  bool is_on_gpu = true;
  /// A copy in the host's memory, for a call that sends it over the wire, and whether that call has written to it.
  std::shared_ptr<Workspace> on_host;
  bool is_written_on_host = false;

 private:
  cudaStream_t home_;
  float* data_ = nullptr;
  std::vector<cudaStream_t> other_streams_;
};

/// The storage of a tensor; null for no elements.
inline GpuStorage* storage(const Tensor& t) {
  return static_cast<GpuStorage*>(TensorMemory::storage(t));
}
/// A tensor whose memory's home is this stream.
Tensor make_on(cudaStream_t home, Shape shape, Purpose purpose = Purpose::activations);
/// A tensor's address, for work that is launched in this stream. (TensorMemory::data: in the computation stream.)
float* data_on(cudaStream_t stream, Tensor& t);
const float* data_on(cudaStream_t stream, const Tensor& t);

/// Elements rounded to bf16, by the storage that they are of: from the first product that takes them on, until work may
/// write to the storage, or memory runs out.
std::unordered_map<const GpuStorage*, std::shared_ptr<const Workspace>>& copies_in_bf16();

/// The home of memory that the host and the GPU both read: page-locked memory of the host.
inline constexpr cudaStream_t host_memory = nullptr;

/// Temporary memory of the GPU for work in one stream, by default the computation stream. It belongs to no
/// tensor and is not booked.
class Workspace {
 public:
  explicit Workspace(Index bytes);
  Workspace(Index bytes, cudaStream_t home);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

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

/// Takes all page-locked memory that copies to the GPU use, since taking it later may wait for the GPU.
void reserve_page_locked();

/// A copy of the GPU's numbers in the host's memory, made in the computation stream. The host waits where it
/// reads them.
class HostCopy {
 public:
  HostCopy(const void* from, std::size_t bytes);
  ~HostCopy();
  HostCopy(const HostCopy&) = delete;
  HostCopy& operator=(const HostCopy&) = delete;

  template <class T>
  std::vector<T> numbers() {
    wait_for(*is_made_);
    const T* first = reinterpret_cast<const T*>(data_);
    return {first, first + bytes_ / sizeof(T)};
  }
  /// Writes the numbers to `to`, without a wait for copies that began later.
  void read(float* to) {
    wait_for(*is_made_);
    std::copy_n(data_, bytes_ / sizeof(float), to);
  }

 private:
  explicit HostCopy(std::size_t bytes);

  std::size_t bytes_;
  float* data_;
  std::unique_ptr<Event> is_made_ = std::make_unique<Event>();
};

/// A copy of host numbers in the GPU's memory, such as the indices of an operation. Copies are kept: the numbers that
/// all layers and steps use, such as positions, are copied once.
class DeviceCopy {
 public:
  template <class T>
  explicit DeviceCopy(std::span<const T> numbers) : DeviceCopy(numbers.data(), numbers.size_bytes()) {}
  template <class T>
  explicit DeviceCopy(const std::vector<T>& numbers) : DeviceCopy(std::span<const T>(numbers)) {}
  /// A part of the copy of the whole list.
  explicit DeviceCopy(const Indices& some) : DeviceCopy(some.whole()) {
    offset_ = static_cast<std::size_t>(some.begin() - some.whole().data()) * sizeof(Index);
  }

  template <class T>
  const T* data() const {
    return memory_->data<T>() + offset_ / sizeof(T);
  }

 private:
  DeviceCopy(const void* numbers, std::size_t bytes);

  std::shared_ptr<const Workspace> memory_;
  std::size_t offset_ = 0;
};

/// The address of t's elements. If there are none, that of another tensor: a kernel's pointers must be valid,
/// even if it reads nothing.
inline const float* readable(const Tensor& t, const Tensor& another) {
  return TensorMemory::data(t.size() > 0 ? t : another);
}

/// Frees all memory that no tensor holds, kept copies too.
void release_blocks();

}  // namespace shard::cuda
