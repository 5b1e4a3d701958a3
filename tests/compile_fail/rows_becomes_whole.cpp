// expect: a Replicated is whole on every device: shard<Axis>(x) takes the slice of this device
// Replicated assigned to Sharded<0>.
#include "engine/layouts.hpp"

using namespace shard;

void assign(Sharded<0>& y, Replicated&& x) {
  y = std::move(x);
}
