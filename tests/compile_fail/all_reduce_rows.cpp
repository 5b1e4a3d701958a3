// expect: this tensor is no addend of a sum, and reducing it would count it once per device
// Slices are gathered, not summed.
#include "engine/sharded_engine.hpp"

using namespace shard;

auto collective(ShardedEngine& engine, Sharded<0>&& s) {
  return engine.all_reduce(std::move(s));
}
