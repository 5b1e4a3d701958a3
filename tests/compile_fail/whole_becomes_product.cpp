// expect: a Partial is one addend of a sum: all_reduce(std::move(x)) makes the sum, Replicated
// The same, assigned.
#include "engine/layouts.hpp"

using namespace shard;

void forward(const Sharded<1>& h, const Sharded<0>& w1, Replicated& out) {
  out = matmul(h, w1);
}
