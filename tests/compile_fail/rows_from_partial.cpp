// expect: a Partial is one addend of a sum: reduce_scatter<Axis>(std::move(x)) makes a slice of the sum
// Partial returned where Sharded<0> is declared.
#include "engine/layouts.hpp"

using namespace shard;

Sharded<0> give(Partial&& x) {
  return std::move(x);
}
