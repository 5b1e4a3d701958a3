// expect: the slices are along another axis: all_to_all<From, To>(std::move(x)) moves the cut
// Sharded<1> where Sharded<0> is declared.
#include "engine/layouts.hpp"

using namespace shard;

void keep(Sharded<1>& x) {
  Sharded<0> y = std::move(x);
}
