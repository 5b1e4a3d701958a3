// expect: R·S0 has no product: transposed(b) would make it R·S1 = S1, and shard<1>(a) S1·S0 = P
// The whole meets only some rows: cut it too.
#include "engine/layouts.hpp"

using namespace shard;

auto product(const Replicated& a, const Sharded<0>& b) {
  return matmul(a, b);
}
