// expect: the slices are along another axis: all_to_all<From, To>(std::move(x)) moves the cut
// Sharded<0> assigned to Sharded<1>.
#include "engine/layouts.hpp"

using namespace shard;

void assign(Sharded<1>& y, Sharded<0>&& x) {
  y = std::move(x);
}
