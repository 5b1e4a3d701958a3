// expect: an Owned is on one device: broadcast(std::move(x)) makes it Replicated, and shard<Axis> of that
// Owned returned where Sharded<0> is declared.
#include "engine/layouts.hpp"

using namespace shard;

Sharded<0> give(Owned&& x) {
  return std::move(x);
}
