// expect: has no member named 'local' | no member named 'local'
// An addend means nothing on its own.
#include "engine/layouts.hpp"

using namespace shard;

const Tensor& look(const Partial& addend) {
  return addend.local();
}
