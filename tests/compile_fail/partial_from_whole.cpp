// expect: a Replicated is no addend: as a Partial it would count once per device
// Replicated returned where Partial is declared.
#include "engine/layouts.hpp"

using namespace shard;

Partial give(Replicated&& x) {
  return std::move(x);
}
