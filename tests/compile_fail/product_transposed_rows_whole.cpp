// expect: S1·R has no product: a without transposed would make it S0·R = S0, and b cut by shard S1·S0 = P
// Rows read transposed are columns.
#include "engine/layouts.hpp"

using namespace shard;

auto product(const Sharded<0>& a, const Replicated& b) {
  return matmul(transposed(a), b);
}
