// expect: all_reduce consumes its argument: write all_reduce(std::move(x))
// The same, of a constant.
#include "engine/sharded_engine.hpp"

using namespace shard;

auto collective(ShardedEngine& engine, const Partial& p) {
  return engine.all_reduce(p);
}
