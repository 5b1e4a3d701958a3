// expect: a Sharded is one slice, and an Owned the whole: all_gather(std::move(x)) makes the whole, Replicated
// Sharded<1> where Owned is declared.
#include "engine/layouts.hpp"

using namespace shard;

void keep(Sharded<1>& x) {
  Owned y = std::move(x);
}
