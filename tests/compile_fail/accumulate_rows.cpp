// expect: the sum and the addend have different layouts: gather or shard the addend first
// A slice added to the whole.
#include "engine/layouts.hpp"

using namespace shard;

void add(Replicated& dw, Sharded<0>&& more) {
  accumulate(dw, std::move(more));
}
