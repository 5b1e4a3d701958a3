// expect: an Owned multiplies an Owned only, as the other devices hold nothing of it
// The owner has the whole as well, but the others have nothing of the result.
#include "engine/layouts.hpp"

using namespace shard;

auto product(const Owned& a, const Replicated& b) {
  return matmul(a, b);
}
