// expect: the slices are along another axis: all_to_all<From, To>(std::move(x)) moves the cut
// Sharded<1> returned where Sharded<0> is declared.
#include "engine/layouts.hpp"

using namespace shard;

Sharded<0> give(Sharded<1>&& x) {
  return std::move(x);
}
