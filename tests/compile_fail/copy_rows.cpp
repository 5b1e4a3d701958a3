// expect: use of deleted function | deleted constructor | implicitly-deleted copy constructor
// Layouts are not copied either.
#include "engine/layouts.hpp"

using namespace shard;

Sharded<0> copy(const Sharded<0>& t) {
  return t;
}
