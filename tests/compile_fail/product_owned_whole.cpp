// expect: these layouts have no product without communication
// The owner has the whole as well, but the others have nothing of the result.
#include "engine/layouts.hpp"

using namespace shard;

auto product(const Owned& a, const Replicated& b) {
  return matmul(a, b);
}
