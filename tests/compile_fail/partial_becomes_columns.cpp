// expect: a Sharded is a slice and no addend: as a Partial, slices of different places would be added
// Sharded<1> assigned to Partial.
#include "engine/layouts.hpp"

using namespace shard;

void assign(Partial& y, Sharded<1>&& x) {
  y = std::move(x);
}
