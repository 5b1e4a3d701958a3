// expect: S1·R has no product: transposed(a) would make it S0·R = S0, and shard<0>(b) S1·S0 = P
// My columns meet only some rows of the whole: cut that one too.
#include "engine/layouts.hpp"

using namespace shard;

auto product(const Sharded<1>& a, const Replicated& b) {
  return matmul(a, b);
}
