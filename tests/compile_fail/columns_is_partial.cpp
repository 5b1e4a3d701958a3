// expect: a Partial is one addend of a sum: reduce_scatter<Axis>(std::move(x)) makes a slice of the sum
// Partial where Sharded<1> is declared.
#include "engine/layouts.hpp"

using namespace shard;

void keep(Partial& x) {
  Sharded<1> y = std::move(x);
}
