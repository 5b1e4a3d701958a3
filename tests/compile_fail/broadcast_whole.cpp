// expect: no matching | cannot convert | could not convert
// Everybody has it.
#include "engine/sharded_engine.hpp"

using namespace shard;

auto collective(ShardedEngine& engine, Replicated&& r) {
  return engine.broadcast(std::move(r));
}
