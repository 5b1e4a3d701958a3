// expect: a Partial is one addend of a sum, and an Owned the whole: all_reduce(std::move(x)) makes the sum
// Partial assigned to Owned.
#include "engine/layouts.hpp"

using namespace shard;

void assign(Owned& y, Partial&& x) {
  y = std::move(x);
}
