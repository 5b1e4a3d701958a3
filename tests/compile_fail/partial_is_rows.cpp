// expect: a Sharded is a slice and no addend: as a Partial, slices of different places would be added
// Sharded<0> where Partial is declared.
#include "engine/layouts.hpp"

using namespace shard;

void keep(Sharded<0>& x) {
  Partial y = std::move(x);
}
