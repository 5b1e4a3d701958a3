// expect: cannot convert | no matching | could not convert
// A slice of an addend would be a slice of nothing.
#include "engine/sharded_engine.hpp"

using namespace shard;

auto collective(ShardedEngine& engine, Partial&& p) {
  return engine.shard<0>(std::move(p));
}
