// expect: a Partial is one addend of a sum: all_reduce(std::move(x)) makes the sum, Replicated
// Partial assigned to Replicated.
#include "engine/layouts.hpp"

using namespace shard;

void assign(Replicated& y, Partial&& x) {
  y = std::move(x);
}
