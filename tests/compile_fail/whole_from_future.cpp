// expect: this is a future of the tensor, not the tensor: .get() waits for it
// An asynchronous call, returned.
#include "engine/sharded_engine.hpp"

using namespace shard;

Replicated give(ShardedEngine& engine, Partial&& p) {
  return engine.all_reduce_async(std::move(p));
}
