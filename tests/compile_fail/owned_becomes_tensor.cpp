// expect: a tensor has no layout: Owned(group(), std::move(x), global_shape, owner) claims whose it is
// Tensor assigned to Owned.
#include "engine/layouts.hpp"

using namespace shard;

void assign(Owned& y, Tensor&& x) {
  y = std::move(x);
}
