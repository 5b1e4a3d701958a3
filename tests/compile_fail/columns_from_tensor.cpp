// expect: a tensor has no layout: Sharded<Axis>(group(), std::move(x), global_shape, offset) claims where
// Tensor returned where Sharded<1> is declared.
#include "engine/layouts.hpp"

using namespace shard;

Sharded<1> give(Tensor&& x) {
  return std::move(x);
}
