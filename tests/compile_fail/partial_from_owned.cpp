// expect: an Owned is no addend: the other devices hold nothing to add
// Owned returned where Partial is declared.
#include "engine/layouts.hpp"

using namespace shard;

Partial give(Owned&& x) {
  return std::move(x);
}
