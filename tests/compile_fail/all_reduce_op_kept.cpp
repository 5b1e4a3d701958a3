// expect: a Partial is an addend, so its reduction is a sum: take no operation
// The same, keeping the argument.
#include "engine/sharded_engine.hpp"

using namespace shard;

auto collective(ShardedEngine& engine, Partial& p) {
  return engine.all_reduce(p, ReduceOp::max);
}
