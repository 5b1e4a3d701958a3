// expect: a Partial is an addend, so its reduction is a sum: take no operation
// The mean of tensor-parallel addends is a wrong result.
#include "engine/sharded_engine.hpp"

using namespace shard;

auto collective(ShardedEngine& engine, Partial&& p) {
  return engine.all_reduce(std::move(p), ReduceOp::avg);
}
