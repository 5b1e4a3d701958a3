// expect: a slice of another shape lies elsewhere: Sharded<Axis>(group(), std::move(x).local().reshaped(shape), global_shape, offset) claims where
// Nobody says along which axis the new shape is cut.
#include "engine/layouts.hpp"

using namespace shard;

auto function(Sharded<0>&& rows) {
  return reshaped(std::move(rows), {2, 3, 4});
}
