// expect: use of deleted function | deleted constructor | implicitly-deleted copy constructor
// Nor is what leaves an engine.
#include "engine/placed.hpp"

using namespace shard;

Placed copy(const Placed& t) {
  return t;
}
