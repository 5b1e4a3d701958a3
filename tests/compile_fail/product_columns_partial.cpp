// expect: S1·P has no product: reduce_scatter<0>(std::move(b)) makes it S1·S0 = P
// A cut tensor with a sum over the same devices.
#include "engine/layouts.hpp"

using namespace shard;

auto product(const Sharded<1>& a, const Partial& b) {
  return matmul(a, b);
}
