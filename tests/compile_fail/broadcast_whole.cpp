// expect: a Replicated is on every device, an Owned on one: no call is needed to read it there
// Everybody has it.
#include "engine/sharded_engine.hpp"

using namespace shard;

auto collective(ShardedEngine& engine, Replicated&& r) {
  return engine.broadcast(std::move(r));
}
