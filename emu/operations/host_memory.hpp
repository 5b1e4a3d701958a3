#pragma once

#include "engine/device/runtime/operations/tensor_memory.hpp"

namespace shard {

/// The emulator's storage: host memory.
class HostStorage : public Storage {
 public:
  HostStorage(Index bytes, Purpose purpose);
  ~HostStorage();

  float* data() { return data_; }

 private:
  float* data_;
};

inline float* TensorMemory::data(Tensor& t) {
  return storage(t) ? static_cast<HostStorage*>(storage(t))->data() : nullptr;
}
inline const float* TensorMemory::data(const Tensor& t) {
  return storage(t) ? static_cast<HostStorage*>(storage(t))->data() : nullptr;
}

namespace emu {

/// The address of a row of a matrix.
inline float* row_of(Tensor& t, Index row) {
  return TensorMemory::data(t) + row * t.extent(1);
}
inline const float* row_of(const Tensor& t, Index row) {
  return TensorMemory::data(t) + row * t.extent(1);
}

}  // namespace emu
}  // namespace shard
