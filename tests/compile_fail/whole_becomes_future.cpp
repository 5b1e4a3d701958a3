// expect: this is a future of the tensor, not the tensor: .get() waits for it
// An asynchronous call, assigned.
#include "engine/sharded_engine.hpp"

using namespace shard;

void keep(ShardedEngine& engine, Partial&& p, Replicated& y) {
  y = engine.all_reduce_async(std::move(p));
}
