// expect: a tensor has no layout: Replicated(group(), std::move(x)) claims that all devices hold the same
// Tensor where Replicated is declared.
#include "engine/layouts.hpp"

using namespace shard;

void keep(Tensor& x) {
  Replicated y = std::move(x);
}
