// expect: a tensor has no layout: Sharded<Axis>(group(), std::move(x), global_shape, offset) claims where
// Tensor where Sharded<0> is declared.
#include "engine/layouts.hpp"

using namespace shard;

void keep(Tensor& x) {
  Sharded<0> y = std::move(x);
}
