// expect: cannot convert | no matching | could not convert
// A typed reduction is a sum.
#include "engine/sharded_engine.hpp"

using namespace shard;

auto collective(ShardedEngine& engine, Partial&& p) {
  return engine.reduce_scatter<0>(std::move(p), ReduceOp::avg);
}
