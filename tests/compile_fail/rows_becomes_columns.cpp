// expect: the slices are along another axis: all_to_all<From, To>(std::move(x)) moves the cut
// Sharded<1> assigned to Sharded<0>.
#include "engine/layouts.hpp"

using namespace shard;

void assign(Sharded<0>& y, Sharded<1>&& x) {
  y = std::move(x);
}
