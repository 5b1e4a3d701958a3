// expect: rvalue reference | no matching | no viable
// A reduction in flight consumes its argument, too.
#include "engine/sharded_engine.hpp"

using namespace shard;

auto collective(ShardedEngine& engine, Partial& p) {
  return engine.all_reduce_async(p);
}
