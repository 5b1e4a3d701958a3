// expect: S0·P has no product: all_reduce(std::move(b)) makes it S0·R = S0
// A slice with a sum.
#include "engine/layouts.hpp"

using namespace shard;

auto product(const Sharded<0>& a, const Partial& b) {
  return matmul(a, b);
}
