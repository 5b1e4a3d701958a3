// expect: a Partial is one addend of a sum: reduce_scatter<Axis>(std::move(x)) makes a slice of the sum
// Partial assigned to Sharded<1>.
#include "engine/layouts.hpp"

using namespace shard;

void assign(Sharded<1>& y, Partial&& x) {
  y = std::move(x);
}
