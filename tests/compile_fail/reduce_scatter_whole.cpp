// expect: a Replicated is no addend: as a Partial it would count once per device
// Only addends are summed.
#include "engine/sharded_engine.hpp"

using namespace shard;

auto collective(ShardedEngine& engine, Replicated&& r) {
  return engine.reduce_scatter<0>(std::move(r));
}
