// expect: a tensor has no layout: Partial(group(), std::move(x)) claims that it is one addend of a sum
// Tensor where Partial is declared.
#include "engine/layouts.hpp"

using namespace shard;

void keep(Tensor& x) {
  Partial y = std::move(x);
}
