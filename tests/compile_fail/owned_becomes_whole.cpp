// expect: a Replicated is on every device, an Owned on one: no call is needed to read it there
// Replicated assigned to Owned.
#include "engine/layouts.hpp"

using namespace shard;

void assign(Owned& y, Replicated&& x) {
  y = std::move(x);
}
