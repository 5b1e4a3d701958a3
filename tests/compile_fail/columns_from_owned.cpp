// expect: an Owned is on one device: broadcast(std::move(x)) makes it Replicated, and shard<Axis> of that
// Owned returned where Sharded<1> is declared.
#include "engine/layouts.hpp"

using namespace shard;

Sharded<1> give(Owned&& x) {
  return std::move(x);
}
