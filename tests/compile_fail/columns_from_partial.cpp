// expect: a Partial is one addend of a sum: reduce_scatter<Axis>(std::move(x)) makes a slice of the sum
// Partial returned where Sharded<1> is declared.
#include "engine/layouts.hpp"

using namespace shard;

Sharded<1> give(Partial&& x) {
  return std::move(x);
}
