// expect: the sum is a Partial and the addend reduced: it would count once per device
// The reverse.
#include "engine/layouts.hpp"

using namespace shard;

void add(Partial& dw, Replicated&& more) {
  accumulate(dw, std::move(more));
}
