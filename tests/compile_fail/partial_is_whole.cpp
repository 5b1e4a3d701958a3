// expect: a Replicated is no addend: as a Partial it would count once per device
// Replicated where Partial is declared.
#include "engine/layouts.hpp"

using namespace shard;

void keep(Replicated& x) {
  Partial y = std::move(x);
}
