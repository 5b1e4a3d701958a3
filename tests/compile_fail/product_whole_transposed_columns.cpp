// expect: these layouts have no product without communication
// The same on the other side.
#include "engine/layouts.hpp"

using namespace shard;

auto product(const Replicated& a, const Sharded<1>& b) {
  return matmul(a, transposed(b));
}
