// expect: R·S0 has no product: b without transposed would make it R·S1 = S1, and a cut by shard S1·S0 = P
// The same on the other side.
#include "engine/layouts.hpp"

using namespace shard;

auto product(const Replicated& a, const Sharded<1>& b) {
  return matmul(a, transposed(b));
}
