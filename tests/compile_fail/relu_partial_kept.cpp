// expect: this function is not linear: f(a) + f(b) is not f(a + b), so reduce the Partial first
// The same, keeping the argument.
#include "engine/layouts.hpp"

using namespace shard;

auto activation(const Partial& z) {
  return relu(z);
}
