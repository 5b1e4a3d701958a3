// expect: a tensor has no layout: Sharded<Axis>(group(), std::move(x), global_shape, offset) claims where
// Tensor where Sharded<1> is declared.
#include "engine/layouts.hpp"

using namespace shard;

void keep(Tensor& x) {
  Sharded<1> y = std::move(x);
}
