// expect: a Partial is one addend of a sum: all_reduce(std::move(x)) makes the sum, Replicated
// A slice of an addend would be a slice of nothing.
#include "engine/sharded_engine.hpp"

using namespace shard;

auto collective(ShardedEngine& engine, Partial&& p) {
  return engine.shard<0>(std::move(p));
}
