// expect: S1·S1 has no product: transposed(b) would make it S1·S0 = P, and all_gather(a) R·S1 = S1
// My columns meet rows that other devices hold.
#include "engine/layouts.hpp"

using namespace shard;

auto product(const Sharded<1>& a, const Sharded<1>& b) {
  return matmul(a, b);
}
