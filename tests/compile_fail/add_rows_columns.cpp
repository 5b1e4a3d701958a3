// expect: the operands of + have different layouts: gather or shard one of them first
// Slices along different axes.
#include "engine/layouts.hpp"

using namespace shard;

auto sum(Sharded<0>&& rows, const Sharded<1>& columns) {
  return std::move(rows) + columns;
}
