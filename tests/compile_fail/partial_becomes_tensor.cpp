// expect: a tensor has no layout: Partial(group(), std::move(x)) claims that it is one addend of a sum
// Tensor assigned to Partial.
#include "engine/layouts.hpp"

using namespace shard;

void assign(Partial& y, Tensor&& x) {
  y = std::move(x);
}
