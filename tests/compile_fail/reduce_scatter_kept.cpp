// expect: rvalue reference | no matching | no viable
// It consumes its argument.
#include "engine/sharded_engine.hpp"

using namespace shard;

auto collective(ShardedEngine& engine, Partial& p) {
  return engine.reduce_scatter<0>(p);
}
