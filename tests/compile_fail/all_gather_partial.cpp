// expect: all_gather joins slices; a Partial is an addend: all_reduce(std::move(x)) makes the sum
// Addends are summed, not put one behind the other.
#include "engine/sharded_engine.hpp"

using namespace shard;

auto collective(ShardedEngine& engine, Partial&& p) {
  return engine.all_gather(std::move(p));
}
