// expect: an Owned multiplies an Owned only, as the other devices hold nothing of it
// The same on the other side.
#include "engine/layouts.hpp"

using namespace shard;

auto product(const Replicated& a, const Owned& b) {
  return matmul(a, b);
}
