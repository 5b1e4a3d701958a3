// expect: an Owned is no addend: the other devices hold nothing to add
// Owned where Partial is declared.
#include "engine/layouts.hpp"

using namespace shard;

void keep(Owned& x) {
  Partial y = std::move(x);
}
