// expect: a Replicated is no addend: as a Partial it would count once per device
// Replicated assigned to Partial.
#include "engine/layouts.hpp"

using namespace shard;

void assign(Partial& y, Replicated&& x) {
  y = std::move(x);
}
