// expect: an Owned is on one device: broadcast(std::move(x)) makes it Replicated
// Owned returned where Replicated is declared.
#include "engine/layouts.hpp"

using namespace shard;

Replicated give(Owned&& x) {
  return std::move(x);
}
