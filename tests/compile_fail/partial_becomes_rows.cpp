// expect: a Sharded is a slice and no addend: as a Partial, slices of different places would be added
// Sharded<0> assigned to Partial.
#include "engine/layouts.hpp"

using namespace shard;

void assign(Partial& y, Sharded<0>&& x) {
  y = std::move(x);
}
