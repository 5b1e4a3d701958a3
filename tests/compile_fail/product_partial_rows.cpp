// expect: P·S0 has no product: reduce_scatter<1>(std::move(a)) makes it S1·S0 = P
// A sum over the devices, cut over the same devices.
#include "engine/layouts.hpp"

using namespace shard;

auto product(const Partial& a, const Sharded<0>& b) {
  return matmul(a, b);
}
