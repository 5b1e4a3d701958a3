// expect: a tensor has no layout: Replicated(group(), std::move(x)) claims that all devices hold the same
// Tensor assigned to Replicated.
#include "engine/layouts.hpp"

using namespace shard;

void assign(Replicated& y, Tensor&& x) {
  y = std::move(x);
}
