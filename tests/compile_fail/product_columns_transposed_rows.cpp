// expect: S1·S1 has no product: b without transposed would make it S1·S0 = P
// Rows read transposed are columns.
#include "engine/layouts.hpp"

using namespace shard;

auto product(const Sharded<1>& a, const Sharded<0>& b) {
  return matmul(a, transposed(b));
}
