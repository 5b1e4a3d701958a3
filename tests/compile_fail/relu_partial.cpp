// expect: ReLU is not linear, so f(a) + f(b) is not f(a + b): reduce the Partial first
// The ReLU of an addend is no addend of the ReLU.
#include "engine/layouts.hpp"

using namespace shard;

auto activation(Partial&& z) {
  return relu(std::move(z));
}
