// expect: the sum is reduced and the addend a Partial: reduce it first
// A weight gradient that was not reduced.
#include "engine/layouts.hpp"

using namespace shard;

void add(Replicated& dw, const Sharded<1>& x, const Sharded<0>& dz) {
  accumulate(dw, matmul(x, dz));
}
