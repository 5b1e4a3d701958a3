// expect: these layouts have no product without communication
// Rows read transposed are columns.
#include "engine/layouts.hpp"

using namespace shard;

auto product(const Sharded<0>& a, const Replicated& b) {
  return matmul(transposed(a), b);
}
