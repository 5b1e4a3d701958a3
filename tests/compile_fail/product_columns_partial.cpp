// expect: these layouts have no product without communication
// A cut tensor with a sum over the same devices.
#include "engine/layouts.hpp"

using namespace shard;

auto product(const Sharded<1>& a, const Partial& b) {
  return matmul(a, b);
}
