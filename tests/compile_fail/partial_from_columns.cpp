// expect: a Sharded is a slice and no addend: as a Partial, slices of different places would be added
// Sharded<1> returned where Partial is declared.
#include "engine/layouts.hpp"

using namespace shard;

Partial give(Sharded<1>&& x) {
  return std::move(x);
}
