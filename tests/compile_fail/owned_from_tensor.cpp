// expect: a tensor has no layout: Owned(group(), std::move(x), global_shape, owner) claims whose it is
// Tensor returned where Owned is declared.
#include "engine/layouts.hpp"

using namespace shard;

Owned give(Tensor&& x) {
  return std::move(x);
}
