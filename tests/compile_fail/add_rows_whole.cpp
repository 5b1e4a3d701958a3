// expect: the operands of + have different layouts: gather or shard one of them first
// A slice and the whole.
#include "engine/layouts.hpp"

using namespace shard;

auto sum(Sharded<0>&& rows, const Replicated& whole) {
  return std::move(rows) + whole;
}
