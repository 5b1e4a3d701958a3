// expect: cannot convert | no matching | no viable | could not convert
// Only addends are summed.
#include "engine/sharded_engine.hpp"

using namespace shard;

auto collective(ShardedEngine& engine, Replicated&& r) {
  return engine.reduce_scatter<0>(std::move(r));
}
