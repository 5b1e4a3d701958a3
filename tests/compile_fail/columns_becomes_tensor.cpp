// expect: a tensor has no layout: Sharded<Axis>(group(), std::move(x), global_shape, offset) claims where
// Tensor assigned to Sharded<1>.
#include "engine/layouts.hpp"

using namespace shard;

void assign(Sharded<1>& y, Tensor&& x) {
  y = std::move(x);
}
