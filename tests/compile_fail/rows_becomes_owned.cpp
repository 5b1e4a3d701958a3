// expect: an Owned is on one device: broadcast(std::move(x)) makes it Replicated, and shard<Axis> of that
// Owned assigned to Sharded<0>.
#include "engine/layouts.hpp"

using namespace shard;

void assign(Sharded<0>& y, Owned&& x) {
  y = std::move(x);
}
