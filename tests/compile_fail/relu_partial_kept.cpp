// expect: ReLU is not linear, so f(a) + f(b) is not f(a + b): reduce the Partial first
// The same, keeping the argument.
#include "engine/layouts.hpp"

using namespace shard;

auto activation(const Partial& z) {
  return relu(z);
}
