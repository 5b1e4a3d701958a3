// expect: the slices are along another axis: all_to_all<From, To>(std::move(x)) moves the cut
// Sharded<0> returned where Sharded<1> is declared.
#include "engine/layouts.hpp"

using namespace shard;

Sharded<1> give(Sharded<0>&& x) {
  return std::move(x);
}
