// expect: a tensor has no layout: Sharded<Axis>(group(), std::move(x), global_shape, offset) claims where
// Tensor returned where Sharded<0> is declared.
#include "engine/layouts.hpp"

using namespace shard;

Sharded<0> give(Tensor&& x) {
  return std::move(x);
}
