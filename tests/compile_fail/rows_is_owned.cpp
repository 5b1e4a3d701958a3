// expect: an Owned is on one device: broadcast(std::move(x)) makes it Replicated, and shard<Axis> of that
// Owned where Sharded<0> is declared.
#include "engine/layouts.hpp"

using namespace shard;

void keep(Owned& x) {
  Sharded<0> y = std::move(x);
}
