// expect: an Owned is on one device: broadcast(std::move(x)) makes it Replicated
// Owned where Replicated is declared.
#include "engine/layouts.hpp"

using namespace shard;

void keep(Owned& x) {
  Replicated y = std::move(x);
}
