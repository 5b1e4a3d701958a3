#pragma once

#include <vector>

#include "engine/device/runtime/operations/tensor_memory.hpp"

namespace shard {

/// A block that is booked and not allocated. Values are kept if the host has written the whole tensor, since
/// engines read them again: tokens, and numbers of rows.
class Storage {
 public:
  Storage(Index bytes, Purpose purpose);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  Purpose purpose() const { return purpose_; }
  void charge_to(Purpose purpose);

  std::vector<float> from_host;  ///< all elements, or none

 private:
  Index bytes_;
  Purpose purpose_;
};

namespace meta {

/// What the host has written to a tensor; empty for any other one.
std::span<const float> host_values(const Tensor& t);

}  // namespace meta
}  // namespace shard
