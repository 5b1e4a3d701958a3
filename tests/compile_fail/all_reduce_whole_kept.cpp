// expect: this tensor is no addend of a sum, and reducing it would count it once per device
// The same, keeping the argument.
#include "engine/sharded_engine.hpp"

using namespace shard;

auto collective(ShardedEngine& engine, Replicated& r) {
  return engine.all_reduce(r);
}
