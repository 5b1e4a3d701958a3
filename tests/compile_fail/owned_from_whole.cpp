// expect: a Replicated is on every device, an Owned on one: no call is needed to read it there
// Replicated returned where Owned is declared.
#include "engine/layouts.hpp"

using namespace shard;

Owned give(Replicated&& x) {
  return std::move(x);
}
