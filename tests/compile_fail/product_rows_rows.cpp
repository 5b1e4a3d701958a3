// expect: S0·S0 has no product: transposed(a) would make it S1·S0 = P
// The rows of one operand meet only some of the columns of the other.
#include "engine/layouts.hpp"

using namespace shard;

auto product(const Sharded<0>& a, const Sharded<0>& b) {
  return matmul(a, b);
}
