// expect: a Replicated is whole on every device: shard<Axis>(x) takes the slice of this device
// Replicated returned where Sharded<0> is declared.
#include "engine/layouts.hpp"

using namespace shard;

Sharded<0> give(Replicated&& x) {
  return std::move(x);
}
