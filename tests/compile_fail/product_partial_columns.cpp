// expect: P·S1 has no product: all_reduce(std::move(a)) makes it R·S1 = S1
// A sum with a slice.
#include "engine/layouts.hpp"

using namespace shard;

auto product(const Partial& a, const Sharded<1>& b) {
  return matmul(a, b);
}
