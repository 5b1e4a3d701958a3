// expect: a Sharded is one slice, and an Owned the whole: all_gather(std::move(x)) makes the whole, Replicated
// Sharded<1> assigned to Owned.
#include "engine/layouts.hpp"

using namespace shard;

void assign(Owned& y, Sharded<1>&& x) {
  y = std::move(x);
}
