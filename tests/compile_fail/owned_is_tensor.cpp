// expect: a tensor has no layout: Owned(group(), std::move(x), global_shape, owner) claims whose it is
// Tensor where Owned is declared.
#include "engine/layouts.hpp"

using namespace shard;

void keep(Tensor& x) {
  Owned y = std::move(x);
}
