// expect: an Owned is on one device: broadcast(std::move(x)) makes it Replicated
// Owned assigned to Replicated.
#include "engine/layouts.hpp"

using namespace shard;

void assign(Replicated& y, Owned&& x) {
  y = std::move(x);
}
