// expect: a Sharded is one slice: all_gather(std::move(x)) makes the whole, Replicated
// Sharded<0> assigned to Replicated.
#include "engine/layouts.hpp"

using namespace shard;

void assign(Replicated& y, Sharded<0>&& x) {
  y = std::move(x);
}
