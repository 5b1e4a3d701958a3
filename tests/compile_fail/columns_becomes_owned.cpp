// expect: an Owned is on one device: broadcast(std::move(x)) makes it Replicated, and shard<Axis> of that
// Owned assigned to Sharded<1>.
#include "engine/layouts.hpp"

using namespace shard;

void assign(Sharded<1>& y, Owned&& x) {
  y = std::move(x);
}
