// expect: an Owned is no addend: the other devices hold nothing to add
// Owned assigned to Partial.
#include "engine/layouts.hpp"

using namespace shard;

void assign(Partial& y, Owned&& x) {
  y = std::move(x);
}
