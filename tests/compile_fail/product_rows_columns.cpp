// expect: these layouts have no product without communication
// A device would get one block of the result, of which the others know nothing.
#include "engine/layouts.hpp"

using namespace shard;

auto product(const Sharded<0>& a, const Sharded<1>& b) {
  return matmul(a, b);
}
