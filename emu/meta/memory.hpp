#pragma once

#include <vector>

#include "engine/device/runtime/operations/tensor_memory.hpp"

namespace shard::meta {

/// A block that is booked and not allocated. Values are kept if the host has written the whole tensor, since
/// engines read them again: tokens, and numbers of rows.
class BookedStorage : public Storage {
 public:
  BookedStorage(Index bytes, Purpose purpose) : Storage(bytes, purpose) {}

  std::shared_ptr<const std::vector<float>> from_host;  ///< all elements, or none
};

/// The storage of a tensor that has elements.
inline BookedStorage& storage(const Tensor& t) {
  return *static_cast<BookedStorage*>(TensorMemory::storage(t));
}

/// What the host has written to a tensor; empty for any other one.
std::span<const float> host_values(const Tensor& t);

}  // namespace shard::meta
