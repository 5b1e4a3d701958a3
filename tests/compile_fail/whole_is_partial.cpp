// expect: a Partial is one addend of a sum: all_reduce(std::move(x)) makes the sum, Replicated
// Partial where Replicated is declared.
#include "engine/layouts.hpp"

using namespace shard;

void keep(Partial& x) {
  Replicated y = std::move(x);
}
