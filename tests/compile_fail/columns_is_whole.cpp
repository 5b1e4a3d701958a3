// expect: a Replicated is whole on every device: shard<Axis>(x) takes the slice of this device
// Replicated where Sharded<1> is declared.
#include "engine/layouts.hpp"

using namespace shard;

void keep(Replicated& x) {
  Sharded<1> y = std::move(x);
}
