// expect: a Sharded is one slice: all_gather(std::move(x)) makes the whole, Replicated
// Sharded<0> where Replicated is declared.
#include "engine/layouts.hpp"

using namespace shard;

void keep(Sharded<0>& x) {
  Replicated y = std::move(x);
}
