// expect: a Partial is one addend of a sum: all_reduce(std::move(x)) makes the sum, Replicated
// A forward pass that forgets its reduction.
#include "engine/layouts.hpp"

using namespace shard;

void forward(const Sharded<1>& h, const Sharded<0>& w1) {
  Replicated out = matmul(h, w1);
}
