// expect: a Sharded is one slice, and an Owned the whole: all_gather(std::move(x)) makes the whole, Replicated
// Sharded<1> returned where Owned is declared.
#include "engine/layouts.hpp"

using namespace shard;

Owned give(Sharded<1>&& x) {
  return std::move(x);
}
