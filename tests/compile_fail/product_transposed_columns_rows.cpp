// expect: S0·S0 has no product: a without transposed would make it S1·S0 = P
// Columns read transposed are rows.
#include "engine/layouts.hpp"

using namespace shard;

auto product(const Sharded<1>& a, const Sharded<0>& b) {
  return matmul(transposed(a), b);
}
