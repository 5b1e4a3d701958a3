#pragma once

#include <cstdint>
#include <vector>

namespace shard {

/// A row-major tensor on the host.
struct HostTensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

}  // namespace shard
