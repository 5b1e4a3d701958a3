// expect: a Replicated is on every device, an Owned on one: no call is needed to read it there
// Replicated where Owned is declared.
#include "engine/layouts.hpp"

using namespace shard;

void keep(Replicated& x) {
  Owned y = std::move(x);
}
