// expect: a Partial is one addend of a sum: all_reduce(std::move(x)) makes the sum, Replicated
// The sum is wanted, and an addend passed.
#include "engine/layouts.hpp"

using namespace shard;

void use(const Replicated& x);

void forward(const Partial& p) {
  use(p);
}
