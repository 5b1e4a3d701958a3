// expect: all_to_all moves the cut from one axis to another: the axes are the same here
// Nothing would move.
#include "engine/sharded_engine.hpp"

using namespace shard;

auto collective(ShardedEngine& engine, Sharded<0>&& s) {
  return (engine.all_to_all<0, 0>(std::move(s)));
}
