// expect: S0·S1 has no product: each device would hold one block; all_gather(b) makes it S0·R = S0, all_gather(a) R·S1 = S1
// A device would get one block of the result, of which the others know nothing.
#include "engine/layouts.hpp"

using namespace shard;

auto product(const Sharded<0>& a, const Sharded<1>& b) {
  return matmul(a, b);
}
