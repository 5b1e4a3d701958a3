// expect: a product takes matrices: these are cut along axis 0 or 1
// A cut that no matrix has.
#include "engine/layouts.hpp"

using namespace shard;

auto product(const Sharded<2>& a, const Replicated& b) {
  return matmul(a, b);
}
