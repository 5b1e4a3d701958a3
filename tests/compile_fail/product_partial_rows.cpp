// expect: these layouts have no product without communication
// A sum over the devices, cut over the same devices.
#include "engine/layouts.hpp"

using namespace shard;

auto product(const Partial& a, const Sharded<0>& b) {
  return matmul(a, b);
}
