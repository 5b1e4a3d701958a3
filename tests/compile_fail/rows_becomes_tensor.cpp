// expect: a tensor has no layout: Sharded<Axis>(group(), std::move(x), global_shape, offset) claims where
// Tensor assigned to Sharded<0>.
#include "engine/layouts.hpp"

using namespace shard;

void assign(Sharded<0>& y, Tensor&& x) {
  y = std::move(x);
}
