#pragma once

#include "engine/device/runtime/operations/tensor_memory.hpp"

namespace shard {

/// The emulator's storage: host memory, booked in the ledger under its purpose.
class Storage {
 public:
  Storage(Index bytes, Purpose purpose);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  float* data() { return data_; }
  Purpose purpose() const { return purpose_; }
  void charge_to(Purpose purpose);

 private:
  Index bytes_;
  Purpose purpose_;
  float* data_;
};

inline float* TensorMemory::data(Tensor& t) {
  return storage(t) ? storage(t)->data() : nullptr;
}
inline const float* TensorMemory::data(const Tensor& t) {
  return storage(t) ? storage(t)->data() : nullptr;
}
inline Purpose TensorMemory::purpose(const Tensor& t) {
  return storage(t) ? storage(t)->purpose() : Purpose::activations;
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
