// expect: all_reduce consumes its argument: write all_reduce(std::move(x))
// The reduction works in its argument's memory.
#include "engine/sharded_engine.hpp"

using namespace shard;

auto collective(ShardedEngine& engine, Partial& p) {
  return engine.all_reduce(p);
}
