// expect: these layouts have no product without communication
// Columns read transposed are rows.
#include "engine/layouts.hpp"

using namespace shard;

auto product(const Sharded<1>& a, const Sharded<0>& b) {
  return matmul(transposed(a), b);
}
