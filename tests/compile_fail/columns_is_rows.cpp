// expect: the slices are along another axis: all_to_all<From, To>(std::move(x)) moves the cut
// Sharded<0> where Sharded<1> is declared.
#include "engine/layouts.hpp"

using namespace shard;

void keep(Sharded<0>& x) {
  Sharded<1> y = std::move(x);
}
