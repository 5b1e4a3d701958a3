// expect: this tensor is no addend of a sum, and reducing it would count it once per device
// What one device has is broadcast, not summed.
#include "engine/sharded_engine.hpp"

using namespace shard;

auto collective(ShardedEngine& engine, Owned&& o) {
  return engine.all_reduce(std::move(o));
}
