// expect: a future: .get() or .wait() waits for the call
// A call that nobody waits for.
#include "engine/sharded_engine.hpp"

using namespace shard;

void reduce(ShardedEngine& engine, Partial&& p) {
  engine.all_reduce_async(std::move(p));
}
