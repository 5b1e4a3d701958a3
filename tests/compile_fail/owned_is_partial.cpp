// expect: a Partial is one addend of a sum, and an Owned the whole: all_reduce(std::move(x)) makes the sum
// Partial where Owned is declared.
#include "engine/layouts.hpp"

using namespace shard;

void keep(Partial& x) {
  Owned y = std::move(x);
}
