#pragma once

#include <cstdint>
#include <vector>

namespace shard {

/// A tensor on the host: as many values as the product of `shape` says, row-major.
struct HostTensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

}  // namespace shard
